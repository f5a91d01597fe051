"""How well maps rank what [CLS] depends on, by layer: Spearman's rho with hidden token attribution.

python benchmarks/layer_correlation.py [--texts 12]

On MiniLM with the demo classifier's test sentences; the table is in docs/mixing.md.
"""

from __future__ import annotations

import argparse
import os

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np

import attnwidgets as aw


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--texts", type=int, default=12, metavar="N", help="sentences, the shortest first")
    chosen = parser.parse_args()
    model, tokenizer = aw.demo_model("encoder")
    texts = sorted((found.text for found in aw.demo_texts("test")), key=len)[: chosen.texts]
    card = aw.evaluate.layer_correlation([aw.trace(model, tokenizer, text) for text in texts])
    print(f"| Spearman's rho | {' | '.join(f'layer {layer}' for layer in card.x)} |")
    print("|---|" + "---:|" * len(card.x))
    for row in range(len(card.methods)):
        print(f"| {card.row_name(row)} | {' | '.join(f'{rho:.2f}' for rho in card.mean[0, row])} |")
    low, high = (end[0] for end in card.interval)
    print(
        f"\n95 % intervals reach at most {np.nanmax(high - low) / 2:.2f} to either side; {len(texts)} texts."
    )


if __name__ == "__main__":
    main()
