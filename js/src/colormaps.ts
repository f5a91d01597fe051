/** Colour maps as 41 RGB triples in base64. Made by js/scripts/bake_colormaps.py; do not edit. */
export const COLORMAPS = {
  viridis: "RAFURgpdSBRmSBxuSCV1Ry17RjSAQzyEQUSHPkuJO1KLOFmMNF+NMmaOL2yOLHKOKniOJ36OJYSOI4qNIZCMH5aLHpyJH6KHIqiEKK6AL7R8OLl3Q79xT8RqXclja81aetFRitVHmtk9q9wyvN8nzeEd3eMY7uUb/ecl",
  rdbu: "BTBhDD50E0uGGlmZIWarKnGyMn24O4i9Q5PDV6DKa6zQfrnXksXeos3istXnwd3s0eXw2+ry5O707vP19/f2+PDr+unf/OLT/dvH+862+MCk9rKT9KWC7ZR15YJo3nFa1mBNzU5ExDw8uyo0shgrnxIojAwlegYiZwAf",
  berlin: "nrD/kK74gazxcarpYabfUp/TRJbFOoy1MoCmLXSWKGiGJFx3H1FpG0ZaFztMFDE/EScyEB4mERcbExASGQwJHwsEJg0BLg4ANxAAQBIBSRUCVBkFYB8LbigSfDMdiT4plko2o1VEr2FTvG5hyXpw1od/5JOO8aCe/62t",
} as const;
