/**
 * Make a style sheet win against the page's: every selector gets the weight of an id, without naming an ancestor, so that
 * a host's rule for `dt` or `.output button` cannot reach into a view.
 */
import postcss from "postcss";
import parse from "postcss-selector-parser";

/** An id that no element has. */
const HEAVY = "#aw";

const weigh = parse((selectors) => {
  selectors.each((selector) => {
    const heavy = parse.pseudo({
      value: ":not",
      nodes: [parse.selector({ nodes: [parse.id({ value: HEAVY.slice(1) })] })],
    });
    const last = selector.nodes.findIndex((node) => parse.isPseudoElement(node));
    if (last < 0) selector.append(heavy);
    else selector.insertBefore(selector.at(last), heavy);
  });
});

/** The text of a style sheet whose selectors have the weight of an id. */
export function isolated(css) {
  const sheet = postcss.parse(css);
  sheet.walkRules((rule) => {
    if (rule.parent.type === "atrule" && rule.parent.name === "keyframes") return;
    rule.selector = weigh.processSync(rule.selector);
  });
  return sheet.toString();
}
