/** Colour maps as RGB triples in base64. Made by js/scripts/bake_colormaps.py; do not edit. */
export const COLORMAPS = {
  paper: "////5fP/zeb+ttn7oMz2i77xd7HpZaThU5bXQ4nNNHzBJ2+1G2KoEFWaCEiLBDx7BDBr",
  paperNight: "EREREx0pFCk/FzVUHEFoIk57K1yNNmmdQ3etUYW7YJTIcaPUg7HelsDoqc/wvt731O39",
  sides: "Ykiqa1K0dVy+fmbHiHHPkXzXm4fepZLlrp7ruKnwwrX1zMH51s384Nn+6ub/9fL///////Ln/uTQ+9e798un8r6U7LKC5aVy3ppi1o5UzYNGw3g5um0tr2IipVgXmk8Nj0UD",
  sidesNight: "zLr3v63xsqDppZPgmIbWjHrLgG6/dGKyaFekXU2VUUOFRjl0OzBjMChQJSA8GxkoERERIhkUMSEXQSgaUDEdYDkhb0Ilf0wpjlYvnWA1q2s8unZDyIJM1Y5V45tf8Kdq/LV1",
  viridis: "RAFURgpdSBRmSBxuSCV1Ry17RjSAQzyEQUSHPkuJO1KLOFmMNF+NMmaOL2yOLHKOKniOJ36OJYSOI4qNIZCMH5aLHpyJH6KHIqiEKK6AL7R8OLl3Q79xT8RqXclja81aetFRitVHmtk9q9wyvN8nzeEd3eMY7uUb/ecl",
  rdbu: "BTBhIWarQ5PDksXe0eXw9/f2/dvH9KWC1mBNshgrZwAf",
  berlin: "nrD/kK74gazxcarpYabfUp/TRJbFOoy1MoCmLXSWKGiGJFx3H1FpG0ZaFztMFDE/EScyEB4mERcbExASGQwJHwsEJg0BLg4ANxAAQBIBSRUCVBkFYB8LbigSfDMdiT4plko2o1VEr2FTvG5hyXpw1od/5JOO8aCe/62t",
  cividis: "ACJOACtkCjRwJT1uNUVsQ05sT1dsW2BuZmlwcXJ0fHt4iIV4lI53oZh1rqJxu61syLhm1sNd5M5S89pD/ug4",
  puor: "LQBLVCeIgHOssqvS2Nrr9/b2/uC2/bhj4IIUs1gGfzsI",
  managua: "gef/eM7wb7bhZ5/SX4nDV3W0UWKhTU+MTD1zTzBbVylIZSo9dzM5jEA6n1E+sWJDwXRJ0IhP4J5X77Zf/89n",
  greys: "////AAAA",
  ink: "AAAA////",
} as const;
