"""In a live JupyterLab the answers of a study reach Python, and texts of concepts open in linked views."""

from __future__ import annotations

import pytest

# The first cell does all work, so that views open while the kernel is idle.
CELLS = (
    """import attnwidgets as aw
model, tokenizer = aw.demo_model("classifier")
train, tests = aw.demo_texts("train")[:40], aw.demo_texts("test")[:4]
trace = aw.trace(model, tokenizer, train[0].text)
texts = [item.text for item in train]
scores = aw.concepts.tcav(
    model, tokenizer, {"film": [text for text in texts if "film" in text] + texts[:2]}, tests, "negative",
    random=texts[2:], layers=[2, 4], test=aw.concepts.ConceptTest(runs=2, permutations=19),
)
taught = aw.concepts.influence(model, tokenizer, train, tests)
why = (["a", "plain", "text"], [0.1, -0.2, 0.9])
told = {"prediction": "yes", "explanations": {"lrp": why}}
items = [{"text": f"a plain text {i}", **told} for i in range(4)]""",
    """view = aw.people.StudyView(aw.people.study("trust", items, ["none", "lrp"], checks=1), code="abcd1234")
view""",
    "explorer = aw.Explorer(trace)\nexplorer",
    "concepts = scores.view(linked=explorer)\nconcepts",
    "influence = taught.view(linked=explorer)\ninfluence",
)
OUTPUT = ".jp-OutputArea"


@pytest.fixture(scope="module")
def notebook(lab):
    lab.write("concepts.ipynb", *CELLS)
    page = lab.open("concepts.ipynb")
    lab.run_all()
    page.locator(f"{OUTPUT} .aw-study").wait_for(timeout=90_000)
    page.locator(f"{OUTPUT} .aw-taught-row").first.wait_for(timeout=90_000)
    return page


def test_answers_of_a_study_reach_python(lab, notebook):
    assert lab.ask("view.responses is None"), "nothing is stored before consent"
    field = notebook.locator(f"{OUTPUT} .aw-study-code")
    field.scroll_into_view_if_needed()
    assert field.input_value() == "abcd1234"
    field.press("Enter")
    notebook.locator(f"{OUTPUT} .aw-study[data-mode=step]").wait_for()
    for index in range(3):
        notebook.locator(f"{OUTPUT} .aw-study-place", has_text=f"{index + 1} of ").wait_for()
        notebook.keyboard.press("4")
        notebook.keyboard.press("Enter")
    lab.until("[row['answer'] for row in view.responses.rows]", [4, 4, 4])
    assert lab.ask("list(view.responses.people)") == ["abcd1234"]


def test_a_text_of_a_concept_opens_in_the_linked_views(lab, notebook):
    notebook.locator(f"{OUTPUT} .aw-concept-row .aw-concept-text").first.click()
    wanted = lab.ask("scores.sort('film', concepts.layer)[0].text")
    lab.until("explorer.trace.text", wanted)


def test_words_of_training_texts_are_coloured_and_by_another_method_when_it_is_chosen(lab, notebook):
    notebook.locator(f"{OUTPUT} .aw-taught-test .aw-concept-word").first.wait_for(timeout=60_000)
    view = notebook.locator(f"{OUTPUT} .aw-taught")
    for method in ("lrp", "saliency"):
        if method != "lrp":
            view.get_by_role("combobox", name="words by").click()
            notebook.get_by_role("option", name=method, exact=True).click()
        trace = "aw.trace(model, tokenizer, tests[0].text)"
        values = f"aw.explain({trace}, {method!r}, target=tests[0].label).to('word').values[1:-1]"
        wanted = lab.ask(f"[round(float(value), 5) for value in {values}]")
        notebook.wait_for_function(
            "(wanted) => { const words = [...document.querySelectorAll('.aw-taught-test .aw-concept-word')];"
            " return words.length === wanted.length"
            " && words.every((word, i) => Math.abs(Number(word.dataset.value) - wanted[i]) < 1e-4); }",
            arg=wanted,
            timeout=60_000,
        )


def test_a_training_text_opens_in_the_linked_views(lab, notebook):
    row = notebook.locator(f"{OUTPUT} .aw-taught-side").first.locator(".aw-taught-row").first
    row.locator(".aw-open-text").click()
    lab.until("explorer.trace.text", lab.ask("taught.helpful(0, 1)[0].text"))
