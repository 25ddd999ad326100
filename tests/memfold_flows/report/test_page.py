"""``memfold show RUN --html``: what the page shows in a real browser, and what no memory can do to it."""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from memfold.errors import BadUsage, PlanDamaged
from memfold_flows import pipeline
from memfold_flows.report import page
from memfold_flows.runs import RunDirectory

sys.path.append(str(Path(__file__).parents[2]))
import browser


def in_browser(test: Any) -> Any:
    """A test that needs Chromium."""
    missing = pytest.mark.skipif(browser.chromium() is None, reason="needs Chromium (Debian: apt install chromium)")
    return pytest.mark.browser(missing(test))


HOSTILE = {
    "script": "<script>document.title = 'owned'</script>",
    "end": "</script><script>document.title = 'owned'</script>",
    "comment": "<!--<script>document.title = 'owned'",
    "image": '<img src="https://example.org/pixel.png" onerror="document.title = \'owned\'">',
    "frame": "<iframe srcdoc=\"<script>parent.document.title = 'owned'</script>\"></iframe>",
    "svg": "<svg onload=\"document.title = 'owned'\"></svg><style>body { display: none }</style>",
    "link": "[click](javascript:document.title='owned') <a href=\"javascript:alert(1)\">here</a>",
    "entity": "&lt;b&gt; &amp;amp; \\u003cscript\\u003e ${document.title} $data $policy",
    "quotes": "'\"><b onmouseover=alert(1)>\u2028\u2029`${alert(1)}`",
    "bidi": "pay \u202e0001\u202c euros \u2066now\u2069\u200f",
    "control": "a\u0001b\u001b[31mred\u007f\u0085 \u200bhidden\ufeff",
    "arabic": "القهوة بدون سكر في المكتب",
    "emoji": "the family 👩‍👩‍👧 eats \U0001f35d at noon",
    "long": "word" * 5_000,
}


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Page]:
    """One browser for the tests of this page."""
    with browser.opened(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def shown(chrome: browser.Page, tmp_path: Path) -> Callable[..., browser.Page]:
    """Open the page of a run in the browser, as it is after a minute of nobody touching it."""

    def show(run: RunDirectory) -> browser.Page:
        page.write(run, tmp_path / "report.html")
        chrome.requests.clear()
        chrome.faults.clear()
        chrome.look_like()
        chrome.open(tmp_path / "report.html")
        return chrome

    return show


@pytest.fixture
def morning(kitchen: Any) -> Any:
    """A kitchen where one thing is said twice, two disagree, and one is over."""
    kitchen.remember("tea-1", "Ann drinks two cups of green tea", kind="habit")
    kitchen.remember("tea-2", "Note: Ann drinks 2 cups of green tea", kind="habit")
    kitchen.remember("oven-1", "The oven is set to 180 degrees for bread", kind="fact")
    kitchen.remember("oven-2", "The oven is set to 220 degrees for bread", kind="fact")
    kitchen.remember("bin", "Glass goes into the blue bin", scope="cellar", kind="fact")
    kitchen.remember("milk", "The milk is in the door", scope="cellar", expires_at=1_000_000)
    return kitchen


@in_browser
def test_the_verdict_comes_first_and_both_losses_are_said(shown: Any, morning: Any, nights: Any) -> None:
    """One of six folds and one has expired: one is lost, two leave."""
    run, _ = nights.plan(morning.store)

    seen = shown(run)

    assert seen.run("document.querySelector('h1').textContent") == "The plan passes the gate"
    assert seen.run("document.querySelector('#lead').textContent") == (
        "Of 6 memories, 1 would fold into another, 1 would leave and 0 would move up."
    )
    figures = seen.run("[...document.querySelectorAll('.figures div')].map((each) => each.innerText.split('\\n'))")
    assert figures[2][:2] == ["lost", "16.7 %"]
    assert figures[3][:2] == ["counted strictly", "33.3 %"]


@in_browser
def test_the_figures_of_a_plan_that_passes_in_part_are_of_what_is_written(
    shown: Any, morning: Any, nights: Any
) -> None:
    """A refused scope stays as it is, so nothing of it is folded or lost; what was planned for it is said apart."""
    for number in range(2):
        morning.remember(f"hat-{number}", f"{'Note: ' * number}Bo wears two red hats", scope="hall")
    run, _ = nights.plan(morning.store)

    seen = shown(run)

    assert seen.run("document.querySelector('#lead').textContent") == (
        "Of 8 memories, 1 would fold into another, 1 would leave and 0 would move up. "
        "1 scope is refused, and nothing of it is written: of its 2 memories, 1 would be lost."
    )
    figures = seen.run("[...document.querySelectorAll('.figures div')].map((each) => each.innerText.split('\\n')[1])")
    assert figures[:4] == ["8", "6", "12.5 %", "25.0 %"]


@in_browser
def test_what_a_person_decided_is_shown_first(shown: Any, morning: Any, nights: Any) -> None:
    """A rejected merge, a pin and a removal, each under its own words, and in one sentence at the top."""
    first, _ = nights.plan(morning.store, max_loss_fraction=0.5)
    run = RunDirectory.create(first.path.parent / "edited", "edited")
    said = {"tea-2": "reject", "oven-1": "pin", "bin": "prune"}
    pipeline.edit(morning.store, first, run, said, clock=lambda: first.manifest.created)

    seen = shown(run)

    assert seen.run("document.querySelector('#history').innerText") == (
        "A person changed this plan: 2 memories are to stay, 1 is to go. The gate looked at it again after that."
    )
    assert seen.run("document.querySelector('[data-action=decided]').textContent") == "Decided by a person 3"
    seen.run("document.querySelector('[data-action=decided]').click()")
    cards = seen.run(
        "[...document.querySelectorAll('article')].map((each) => [each.querySelector('b').textContent,"
        " each.querySelector('.mark').textContent, each.querySelector('.about').textContent.split(' ')[0]])"
    )
    assert cards == [
        ["Removed by a person", "leaves", "bin"],
        ["Kept by a person", "stays", "tea-2"],
        ["Pinned by a person", "stays", "oven-1"],
    ]


@in_browser
def test_a_merge_is_shown_word_by_word(shown: Any, morning: Any, nights: Any) -> None:
    """What goes is struck, what only the survivor says is underlined, all else is plain."""
    run, _ = nights.plan(morning.store)

    seen = shown(run)

    merge = "document.querySelector('article')"
    assert seen.run(f"{merge}.querySelector('h3').innerText.includes('Folds into one')")
    words = seen.run(f"[...{merge}.querySelectorAll('del, ins')].map((each) => [each.localName, each.textContent])")
    assert words == [["del", "Note:"], ["del", "2"], ["ins", "two"]]
    conflict = "[...document.querySelectorAll('article')].find((each) => each.innerText.includes('Conflict'))"
    marked = seen.run(f"[...{conflict}.querySelectorAll('mark')].map((each) => each.textContent)")
    assert marked == ["180", "220"]


@in_browser
@pytest.mark.parametrize(
    ("filtering", "left"),
    [
        ("document.querySelector('[data-action=merge]').click()", ["Folds into one"]),
        ("choose('scope', 'cellar')", ["Leaves"]),
        ("choose('kind', 'habit')", ["Folds into one"]),
        ("search('220 DEGREES')", ["Conflict: both stay, look at them"]),
        ("search('nothing like it')", []),
    ],
)
def test_filters_leave_what_they_name(shown: Any, morning: Any, nights: Any, filtering: str, left: list[str]) -> None:
    """By what happens, by scope, by kind and by text; the count says how many of how many."""
    run, _ = nights.plan(morning.store)
    seen = shown(run)
    seen.run(
        """globalThis.choose = (id, name) => {
            const select = document.getElementById(id);
            select.value = [...select.options].find((option) => option.text === name).value;
            select.dispatchEvent(new Event('change'));
        };
        globalThis.search = (text) => {
            document.getElementById('text').value = text;
            document.getElementById('text').dispatchEvent(new Event('input'));
        }; 0"""
    )

    seen.run(filtering)

    assert seen.run("[...document.querySelectorAll('article h3 b')].map((each) => each.textContent)") == left
    assert seen.run("document.getElementById('count').textContent") == f"{len(left)} of 3 entries"


@in_browser
def test_the_keyboard_is_enough(shown: Any, morning: Any, nights: Any) -> None:
    """j and k walk, / searches, Esc takes the search back; letters typed in the search are letters."""
    run, _ = nights.plan(morning.store)
    seen = shown(run)
    at = "[...document.querySelectorAll('article')].indexOf(document.activeElement)"

    seen.press("j", "j")
    assert seen.run(at) == 1
    seen.press("k")
    assert seen.run(at) == 0
    seen.press("/", "j", "k")
    assert seen.run("document.getElementById('text').value") == "jk"
    assert seen.run("document.getElementById('count').textContent") == "0 of 3 entries"
    seen.press("Escape")
    assert seen.run("document.getElementById('count').textContent") == "3 entries"


@in_browser
def test_no_memory_acts_on_the_page(shown: Any, kitchen: Any, nights: Any) -> None:
    """Markup, ends of scripts, bidi overrides and control characters are shown as text; nothing runs or is fetched."""
    for name, text in HOSTILE.items():
        kitchen.remember(f"{name}<b>", text, kind="<i>kind</i>", scope=f"</script>{name}", title=f"<u>{name}</u>")
        kitchen.remember(f"{name}-copy", text, kind="<i>kind</i>", scope=f"</script>{name}", title=f"<u>{name}</u>")
    run, report = nights.plan(kitchen.store, max_loss_fraction=1.0)
    assert report.totals.merged == len(HOSTILE)

    seen = shown(run)

    assert seen.faults == []
    assert seen.requests == [address for address in seen.requests if address.startswith("file:")][:1]
    assert "owned" not in seen.run("document.title")
    inside = "script, iframe, img, svg, style, a, b b, i, u, object, embed, link"
    assert seen.run(f"document.querySelectorAll('main :is({inside})').length") == 0
    text = seen.run("document.getElementById('list').innerText")
    for said in (
        "<script>document.title = 'owned'</script>",
        '<img src="https://example.org/pixel.png"',
        "$data $policy",
    ):
        assert said in text
    for sign in ("U+202E", "U+2066", "U+200F", "U+0001", "U+001B", "U+007F", "U+0085", "U+200B", "U+FEFF", "U+2028"):
        assert sign in text
    assert not set("\u202e\u2066\u200f\u0001\u001b\u007f\u0085\u200b\ufeff\u2028") & set(text)
    assert "👩‍👩‍👧" in text


@in_browser
def test_the_page_may_ask_for_nothing(shown: Any, morning: Any, nights: Any) -> None:
    """Were a script to run all the same, the page's own policy would keep it from every connection."""
    run, _ = nights.plan(morning.store)
    seen = shown(run)

    refused = seen.run("fetch('http://127.0.0.1:9/').then(() => 'sent', (error) => error.message)")
    seen.run(
        "document.body.append(Object.assign(document.createElement('script'), {text: 'document.title = `owned`'}))"
    )

    assert refused == "Failed to fetch"
    assert any("Content Security Policy" in fault for fault in seen.faults)
    assert "owned" not in seen.run("document.title")


@in_browser
def test_ten_thousand_actions_stay_quick(
    chrome: browser.Page, kitchen: Any, nights: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page opens within three seconds, shows fifty at a time, and a search through all takes less than one."""
    kitchen.remember("tea-1", "Ann drinks two cups of green tea")
    kitchen.remember("tea-2", "Note: Ann drinks 2 cups of green tea")
    run, _ = nights.plan(kitchen.store, max_loss_fraction=1.0)
    monkeypatch.setattr("memfold_flows.views.look", _many_merges(page.views.look(run, most=5)))
    page.write(run, tmp_path / "large.html")
    assert (tmp_path / "large.html").stat().st_size > 2_000_000

    seconds = chrome.open(tmp_path / "large.html")

    assert chrome.run("document.getElementById('count').textContent") == "10,000 entries"
    assert chrome.run("document.querySelectorAll('article').length") == 50
    searched = chrome.run(
        """(() => { const began = performance.now(); const text = document.getElementById('text');
        text.value = 'cup 9,999'; text.dispatchEvent(new Event('input')); return performance.now() - began; })()"""
    )
    assert chrome.run("document.getElementById('count').textContent") == "1 of 10,000 entries"
    assert seconds < 3.0
    assert searched < 1000
    chrome.run(
        "document.getElementById('text').value = ''; document.getElementById('text').dispatchEvent(new Event('input'))"
    )
    chrome.run("document.activeElement.blur()")
    chrome.press("n")
    assert chrome.run("document.getElementById('where').textContent") == "51 to 100 of 10,000"


def test_a_page_is_for_its_owner_and_says_what_it_leaves_out(morning: Any, nights: Any, tmp_path: Path) -> None:
    """It holds texts, so nobody else may read it; of more entries than fit it names the number that is missing."""
    run, _ = nights.plan(morning.store)

    page.write(run, tmp_path / "report.html", most=1)

    assert stat.S_IMODE((tmp_path / "report.html").stat().st_mode) == 0o600
    assert '"left_out":2' in (tmp_path / "report.html").read_text("utf-8")


def test_what_was_done_with_the_plan_stands_on_the_page(morning: Any, nights: Any) -> None:
    """Applied and taken back, each with its time."""
    run, _ = nights.plan(morning.store, max_loss_fraction=0.5)
    receipt = nights.apply(morning.store, run)
    pipeline.undo(morning.store, run, clock=lambda: receipt.ended_at)

    html = page.page(run)

    assert '"applied":{"state":"Consolidated"' in html
    assert '"undone":{"state":"Undone"' in html


def test_a_damaged_run_has_no_page(morning: Any, nights: Any, tmp_path: Path) -> None:
    """A page of a plan that was changed by hand would show what no gate has seen."""
    run, _ = nights.plan(morning.store)
    plan = run.read("plan")
    pa.parquet.write_table(plan.slice(1), run.file("plan"))

    with pytest.raises(PlanDamaged):
        page.write(run, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("name", ["kitchen.db", "report", "missing/report.html"])
def test_a_page_takes_no_other_files_place(name: str, morning: Any, nights: Any, tmp_path: Path) -> None:
    """An argument that slipped must not replace a store."""
    run, _ = nights.plan(morning.store)
    before = morning.path.read_bytes()

    with pytest.raises(BadUsage, match="nothing was written"):
        page.write(run, tmp_path / name)

    assert morning.path.read_bytes() == before


def _many_merges(view: Any) -> Callable[..., Any]:
    """The one merge of a view ten thousand times, each of a text of its own."""
    from dataclasses import replace

    cluster = view.clusters.items[0]
    member, survivor = cluster.members[0], cluster.survivor
    clusters = tuple(
        replace(
            cluster,
            survivor=replace(
                survivor, memory_id=f"stays-{number}", text=f"{survivor.text} in cup {number:,}" + " and more" * 8
            ),
            members=(replace(member, memory_id=f"goes-{number}", text=f"{member.text} in cup {number:,}"),),
        )
        for number in range(10_000)
    )
    many = replace(view, clusters=replace(view.clusters, items=clusters, total=len(clusters)))
    return lambda *_, **__: many
