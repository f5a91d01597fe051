/**
 * Properties of our own objects that never leave the bundle: the minifier gives them short names. None may be a name in
 * data (`wire.ts`, options, messages; what is read by a string, as `model.get("options")`, is not touched), nor one that
 * the browser knows and we use.
 */
const NAMES = `
crosshair plot canvas alive arrived ask attach axisOf box boxes cancel cell cellHeight cellIn cellWidth
chunks codes common current element elements exact failure field finish finishAll follow
headName header heard holder hover keep layerName layered layout list make measured
mode move notes offer onChange options owners peak pin playing pool preview
range read request resolved room rtl selection show since slot spaced status
subscribe theme tries underlay visible words
gather huge renew requestHeads reveal scrolled solo valuesOf
`;

export const internal = new RegExp(`^(${NAMES.trim().split(/\s+/).join("|")})$`);
