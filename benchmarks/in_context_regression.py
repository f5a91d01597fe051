"""One layer of attention that learns linear regression in context: what its weights look like afterwards.

`python benchmarks/in_context_regression.py [PAGE.html]` trains it (six seconds of CPU a seed), prints the QK
and OV circuits of its heads, and draws them as maps into a page. One column is a token: x_i and y_i = w . x_i
for 20 examples, then x_q and 0, w and x of N(0, 1). The model predicts y_q by softmax attention of the last
column over the examples: the sum of the heads' last entries (Zhang et al. 2024, Trained Transformers Learn
Linear Models In-Context; He et al. 2025, In-Context Linear Regression Demystified, for softmax).
"""

from __future__ import annotations

import sys
import time

import torch

import attnwidgets as aw

SIZE, EXAMPLES, HEADS = 4, 20, 2
STEPS, BATCH = 6000, 128


def tasks(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs [task, column, SIZE + 1] and the answers [task]."""
    x = torch.randn(count, EXAMPLES + 1, SIZE, generator=generator)
    y = torch.einsum("nid,nd->ni", x, torch.randn(count, SIZE, generator=generator))
    shown = y.clone()
    shown[:, -1] = 0
    return torch.cat([x, shown[..., None]], dim=-1), y[:, -1]


class Attention(torch.nn.Module):
    """A layer of attention with whole QK and OV matrices for every head [head, SIZE + 1, SIZE + 1]."""

    def __init__(self) -> None:
        super().__init__()
        shape = HEADS, SIZE + 1, SIZE + 1
        self.qk = torch.nn.Parameter(0.02 * torch.randn(shape))
        self.ov = torch.nn.Parameter(0.02 * torch.randn(shape))

    def forward(self, columns: torch.Tensor) -> torch.Tensor:
        """Return the predictions [task]."""
        scores = torch.einsum("nd,hde,nke->nhk", columns[:, -1], self.qk, columns[:, :-1])
        mixed = torch.einsum("nhk,nkd->nhd", scores.softmax(-1), columns[:, :-1])
        return torch.einsum("nhd,hd->n", mixed, self.ov[:, :, -1])


def ridge(columns: torch.Tensor) -> torch.Tensor:
    """Return what ridge regression on the examples predicts [task], the best that can be done."""
    x, y, query = columns[:, :-1, :-1], columns[:, :-1, -1], columns[:, -1, :-1]
    gram = x.mT @ x + 1e-3 * torch.eye(SIZE)
    return (torch.linalg.solve(gram, (x.mT @ y[..., None]))[..., 0] * query).sum(-1)


def trained(seed: int) -> Attention:
    """Return a trained layer."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = Attention()
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    for _ in range(STEPS):
        columns, answers = tasks(BATCH, generator)
        loss = (model(columns) - answers).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return model


@torch.no_grad()
def report(model: Attention) -> None:
    """Print what a layer learned."""
    columns, answers = tasks(10_000, torch.Generator().manual_seed(1000))
    errors = (guess - answers for guess in (model(columns), torch.zeros_like(answers), ridge(columns)))
    said = (f"{float(error.square().mean()):.3f}" for error in errors)
    print("mean squared error {}; of 0 {}; of ridge {}".format(*said))
    for head in range(HEADS):
        qk, ov = model.qk[head], model.ov[head, :, -1]
        diagonal = qk[:SIZE, :SIZE].diagonal()
        beside = qk.clone()
        beside.diagonal()[:SIZE] = 0
        # The query's last entry is 0, so that the last row of QK is never used.
        print(
            f"  head {head}: QK diagonal {diagonal.mean():+.2f} (from {diagonal.min():+.2f} to "
            f"{diagonal.max():+.2f}), beside it at most {beside[:SIZE].abs().max():.2f}; OV last entry "
            f"{ov[-1]:+.2f}, others at most {ov[:SIZE].abs().max():.2f}"
        )


@torch.no_grad()
def maps(models: list[Attention]) -> aw.results.MixingMap:
    """Return the circuits of layers: a layer of the map for each, QK of its heads and then OV."""
    values = torch.stack([torch.cat([model.qk, model.ov.mT]) for model in models])
    axis = aw.results.TokenAxis.plain([*(f"x{place}" for place in range(1, SIZE + 1)), "y"])
    title = "QK of both heads, OV of both; rows: query, or what is written"
    return aw.results.MixingMap(
        values.double().numpy(), query=axis, causal=False, stochastic=False, method="in_context_regression",
        provenance={"title": title},
    )  # fmt: skip


def main() -> None:
    """Train a layer from three seeds, print what each learned, and draw it."""
    torch.set_num_threads(1)
    models = []
    for seed in range(3):
        started = time.process_time()
        models.append(trained(seed))
        print(f"seed {seed}, {time.process_time() - started:.0f} s of CPU: ", end="")
        report(models[-1])
    for path in sys.argv[1:]:
        aw.HeadGrid(maps(models)).to_html(path)


main()
