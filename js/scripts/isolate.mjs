/**
 * Make a style sheet win against the page's: every selector gets the weight of two ids, without naming an ancestor, so that
 * a host's rule for `dt` or `#page .output button` cannot reach into a view.
 */
import postcss from "postcss";
import parse from "postcss-selector-parser";

/** An id that no element has; it counts twice. */
const id = () => parse.id({ value: "aw" });

const weigh = parse((selectors) => {
  selectors.each((selector) => {
    const heavy = parse.pseudo({
      value: ":not",
      nodes: [parse.selector({ nodes: [id(), id()] })],
    });
    const last = selector.nodes.findIndex((node) => parse.isPseudoElement(node));
    if (last < 0) selector.append(heavy);
    else selector.insertBefore(selector.at(last), heavy);
  });
});

/** The text of a style sheet whose selectors have the weight of two ids. */
export function isolated(css) {
  const sheet = postcss.parse(css);
  sheet.walkRules((rule) => {
    if (rule.parent.type === "atrule" && rule.parent.name === "keyframes") return;
    rule.selector = weigh.processSync(rule.selector);
    // Whatever the page sets for a pseudo-element of ours goes where it is made.
    const makes = rule.some(({ prop, value }) => prop === "content" && value !== "none");
    if (makes) rule.prepend({ prop: "all", value: "revert" });
  });
  return sheet.toString();
}
