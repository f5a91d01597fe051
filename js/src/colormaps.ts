/** Colour maps as RGB triples in base64. Made by js/scripts/bake_colormaps.py; do not edit. */
export const COLORMAPS = {
  viridis: "RAFURgpdSBRmSBxuSCV1Ry17RjSAQzyEQUSHPkuJO1KLOFmMNF+NMmaOL2yOLHKOKniOJ36OJYSOI4qNIZCMH5aLHpyJH6KHIqiEKK6AL7R8OLl3Q79xT8RqXclja81aetFRitVHmtk9q9wyvN8nzeEd3eMY7uUb/ecl",
  rdbu: "BTBhIWarQ5PDksXe0eXw9/f2/dvH9KWC1mBNshgrZwAf",
  berlin: "nrD/kK74gazxcarpYabfUp/TRJbFOoy1MoCmLXSWKGiGJFx3H1FpG0ZaFztMFDE/EScyEB4mERcbExASGQwJHwsEJg0BLg4ANxAAQBIBSRUCVBkFYB8LbigSfDMdiT4plko2o1VEr2FTvG5hyXpw1od/5JOO8aCe/62t",
  cividis: "ACJOACtkCjRwJT1uNUVsQ05sT1dsW2BuZmlwcXJ0fHt4iIV4lI53oZh1rqJxu61syLhm1sNd5M5S89pD/ug4",
  puor: "LQBLVCeIgHOssqvS2Nrr9/b2/uC2/bhj4IIUs1gGfzsI",
  managua: "gef/eM7wb7bhZ5/SX4nDV3W0UWKhTU+MTD1zTzBbVylIZSo9dzM5jEA6n1E+sWJDwXRJ0IhP4J5X77Zf/89n",
  greys: "////AAAA",
  ink: "AAAA////",
} as const;
