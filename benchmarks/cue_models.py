"""Cue contribution of MiniLM as it is, fine-tuned on number agreement, and with random weights.

python benchmarks/cue_models.py [--train 300] [--test 40] [--write]

MiniLM learns to say, from the state of a masked target, whether the target is singular or plural, on
sentences that are not scored. Its weights are not kept. With --write the table goes into cue_contribution.md.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import time
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from cue_contribution import DATA, SUBSETS, TABLES, by_layer
from pages import write_between
from torch import nn

import attnwidgets as aw

MARKS = ("<!-- models measured -->", "<!-- end of models measured -->")
BATCH = 32
LABELS = ("singular", "plural")


def split(n_train: int, n_test: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return sentences to learn from and sentences to score, none in both, equally many of every subset.

    The determiner sets have no label for number, and are left out.
    """
    lines = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
    train, test = [], []
    for subset in SUBSETS:
        rows = [line for line in lines if line["uid"] == subset and line["label"] in LABELS]
        random.Random(0).shuffle(rows)
        test += rows[:n_test]
        seen = {" ".join(row["words"]) for row in rows[:n_test]}
        train += [row for row in rows[n_test:] if " ".join(row["words"]) not in seen][:n_train]
    return train, test


def batch_of(rows: list[dict[str, Any]], tokenizer: Any) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """Return model inputs with one mask for every target, where the mask is, and the labels."""
    masked = [
        [
            tokenizer.mask_token if place == row["target_index"] else word
            for place, word in enumerate(row["words"])
        ]
        for row in rows
    ]
    inputs = tokenizer([" ".join(words) for words in masked], padding=True, return_tensors="pt")
    where = (inputs["input_ids"] == tokenizer.mask_token_id).int().argmax(dim=1)
    return inputs, where, torch.tensor([LABELS.index(row["label"]) for row in rows])


class Tagger(nn.Module):
    """An encoder, and a linear layer that reads the number at the mask."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(encoder.config.hidden_size, len(LABELS))

    def forward(self, inputs: Any, where: torch.Tensor) -> torch.Tensor:
        """Return logits [sentence, label]."""
        states = self.encoder(**inputs).last_hidden_state
        logits: torch.Tensor = self.head(states[torch.arange(len(where)), where])
        return logits


def accuracy(tagger: Tagger, rows: list[dict[str, Any]], tokenizer: Any) -> float:
    """Return the share of sentences whose number is right."""
    tagger.eval()
    right = 0
    with torch.no_grad():
        for start in range(0, len(rows), BATCH):
            inputs, where, labels = batch_of(rows[start : start + BATCH], tokenizer)
            right += int((tagger(inputs, where).argmax(-1) == labels).sum())
    return right / len(rows)


def tuned(
    model: Any, tokenizer: Any, train: list[dict[str, Any]], *, frozen: bool, epochs: int = 3
) -> Tagger:
    """Return a copy of a model that learnt the task, with everything or only the linear layer (`frozen`)."""
    torch.manual_seed(0)
    tagger = Tagger(copy.deepcopy(model))
    rate = 1e-2 if frozen else 2e-4
    learns = tagger.head.parameters() if frozen else tagger.parameters()
    optimiser = torch.optim.AdamW(learns, lr=rate)
    order = random.Random(0)
    for _ in range(epochs):
        rows = order.sample(train, len(train))
        tagger.encoder.train(not frozen)
        for start in range(0, len(rows), BATCH):
            inputs, where, labels = batch_of(rows[start : start + BATCH], tokenizer)
            loss = nn.functional.cross_entropy(tagger(inputs, where), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return tagger


def main() -> None:
    """Train, measure, print, and write the tables with `--write`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "--train", type=int, default=300, metavar="N", help="sentences per subset that has labels"
    )
    parser.add_argument(
        "--test", type=int, default=40, metavar="N", help="sentences per subset that has labels"
    )
    parser.add_argument("--write", action="store_true", help=f"write the tables into {TABLES.name}")
    chosen = parser.parse_args()
    began = time.time()
    model, tokenizer = aw.demo_model("encoder")
    model = model.eval()
    train, test = split(chosen.train, chosen.test)
    fine = tuned(model, tokenizer, train, frozen=False)
    drawn = aw.randomized(model, copy=True, seed=0)
    right = {
        "pre-trained": accuracy(tuned(model, tokenizer, train, frozen=True), test, tokenizer),
        "fine-tuned": accuracy(fine, test, tokenizer),
        "random": accuracy(tuned(drawn, tokenizer, train, frozen=True), test, tokenizer),
    }
    trained = (time.time() - began) / 60
    models = {"pre-trained": model, "fine-tuned": fine.encoder.eval(), "random": drawn}
    card = aw.evaluate.cue_contribution(models, tokenizer, test, ranked="others")
    command = f"python benchmarks/cue_models.py --train {chosen.train} --test {chosen.test} --write"
    said = ", ".join(f"{name} {share:.2f}" for name, share in right.items())
    note = (
        f"{time.strftime('%Y-%m-%d')}, `{command}`: {(time.time() - began) / 60:.0f} minutes, of which "
        f"{trained:.0f} to train on {len(train):,} sentences. Number of the masked target told right in "
        f"{len(test)} others: {said} (a linear layer alone learns where the model is not fine-tuned)."
    )
    text = "\n\n".join([note, *(by_layer(card, metric, list(card.x)) for metric in card.metrics)])
    print(text)
    if chosen.write:
        write_between(TABLES, *MARKS, text)


if __name__ == "__main__":
    main()
