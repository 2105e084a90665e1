"""Parts of a page as HTML: sections, lists and tables, all of their text escaped."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dtsweep.escape import html_text
from dtsweep.page.points_markup import points_of
from dtsweep.report.scaling_words import WORTH_RULE
from dtsweep.text import count_of

_CODE = re.compile(r"`([^`\n]+)`")

_DOUBTS_SHOWN = 3
"""Number of doubts next to the answer; the section on warnings has all."""

_WORTH_SHOWN = 6


_SHORT = {
    "scaling": "Scaling",
    "shares": "Step",
    "memory": "Memory",
    "steps": "Trials",
    "how": "Method",
    "machine": "Machine",
}
"""Names of sections in the navigation, where their titles are longer."""


def main_of(view: dict[str, Any]) -> str:
    """Sections of a page, in their order."""
    return "\n".join(text for _, _, text in _sections(view))


def navigation_of(view: dict[str, Any]) -> str:
    """Links to the sections."""
    return "\n".join(
        f'<li><a href="#{name}">{html_text(_SHORT.get(name, title))}</a></li>'
        for name, title, _ in _sections(view)
    )


def _sections(view: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Name, title and HTML of each section that has anything to show."""
    written: list[tuple[str, str, Callable[[dict[str, Any]], str]]] = [
        ("answer", "Answer", _first),
        ("warnings", "Warnings", _warnings),
        ("failures", "Not measured", _failures),
        ("how", "How it was measured", _how),
        ("machine", "Machine and versions", _machine),
    ]
    made = [(name, title, make(view)) for name, title, make in written]
    first, *last = [section for section in made if section[2]]
    return [first, *_plot_sections(view), *_points(view), *last]


def _section(name: str, title: str, body: str) -> str:
    """Section with its heading; empty without a body."""
    if not body:
        return ""
    return (
        f'<section id="{name}" aria-labelledby="{name}-title">\n'
        f'<h2 id="{name}-title">{html_text(title)}</h2>\n{body}\n</section>'
    )


def _first(view: dict[str, Any]) -> str:
    """First screen: the answer, what limits it, what is next, doubts; and the frontier."""
    words = [*map(_answer, view["answers"])]
    if view["none"]:
        words.append(f'<p class="verdict">{_prose(view["none"])}</p>')
    if view["frontier_answer"]:
        words.insert(0, f'<p class="verdict">{_prose(view["frontier_answer"])}</p>')
    if view["answers_table"]:
        words.append(table_of("All recommendations", view["answers_table"]))
    words.append(_main_doubts(view["doubts"]))
    plot = "".join(
        _figure(one, heading=f"<h2>{html_text(one['title'])}</h2>\n")
        for one in view["plots"]
        if one["name"] == "frontier"
    )
    return (
        '<section id="answer" class="first" aria-labelledby="answer-title" tabindex="-1">\n'
        '<div class="words">\n<h2 id="answer-title">Answer</h2>\n'
        + "\n".join(words)
        + f"\n</div>\n{plot}\n</section>"
    )


def _answer(answer: dict[str, Any]) -> str:
    """One recommendation with its evidence, its limit and the next step."""
    first, *others = answer["sentences"]
    kind, mark = "open", "?"
    if answer["is_decided"]:
        kind, mark = "decided", "✓"
    parts = [
        f'<p class="state {kind}"><span aria-hidden="true">{mark}</span> '
        f"{html_text(answer['state'])}</p>",
        f'<p class="verdict">{_prose(first)}</p>',
        *(f"<p>{_prose(sentence)}</p>" for sentence in others[:2]),
    ]
    if others[2:]:
        parts.append(_details("More on this answer", _items(others[2:])))
    parts.append(f"<h3>What limits it</h3>\n<p>{_prose(answer['limit'])}</p>")
    following = [_prose(answer["next"])] if answer["next"] else []
    following += [
        f"Try <code>{html_text(axis['axis'])}</code>, which could save at most "
        f"{html_text(axis['share'])} of the step: {_prose(axis['why'])}."
        for axis in answer["axes"]
    ]
    if following:
        listed = "\n".join(f"<li>{text}</li>" for text in following)
        parts.append(f"<h3>What to do next</h3>\n<ul>\n{listed}\n</ul>")
    return "\n".join(parts)


def _main_doubts(doubts: Sequence[str]) -> str:
    """First doubts, without the lines that explain them."""
    if not doubts:
        return ""
    shown = [doubt.partition("\n")[0] for doubt in doubts[:_DOUBTS_SHOWN]]
    return (
        f'<h3>Doubts</h3>\n<div class="doubts">{_items(shown)}</div>\n'
        '<p class="more on-screen"><a href="#warnings">All warnings</a></p>'
    )


def _plot_sections(view: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Section for each plot but the frontier, and the one of the step times of a trial."""
    sections = []
    for plot in view["plots"]:
        if plot["name"] == "frontier":
            continue
        body = _figure(plot)
        if plot["name"] == "scaling":
            body += _worth(view["worth"])
        sections.append((plot["name"], plot["title"], _section(plot["name"], plot["title"], body)))
    if view["traces"]:
        title = "Step times of a trial"
        sections.append(("steps", title, _section("steps", title, _steps(view["traces"]))))
    return sections


def _figure(plot: Mapping[str, Any], *, heading: str = "") -> str:
    """Place for a plot, with its description and the table behind it.

    Args:
        plot: as `dtsweep.page.view.plot_values` gives it.
        heading: HTML of a heading; without one, that of the section names the plot.
    """
    name = plot["name"]
    subtitle = f'<p class="subtitle">{html_text(plot["subtitle"])}</p>' if plot["subtitle"] else ""
    note = f'<p class="note">{html_text(plot["note"])}</p>\n' if plot["note"] else ""
    labelled = f'role="group" aria-label="{html_text(plot["title"])}"'
    return (
        f'<figure class="figure">\n{heading}{subtitle}'
        f'<div class="plot" id="{name}-plot" {labelled} aria-describedby="{name}-words"></div>\n'
        f'{note}<figcaption id="{name}-words">{html_text(plot["description"])}</figcaption>\n'
        f'<details class="numbers on-screen" data-plot="{name}"><summary>Table behind the plot'
        f'<span class="unseen">: {html_text(plot["title"])}</span></summary></details>\n</figure>'
    )


def _worth(sentences: Sequence[str]) -> str:
    """Sentences from where one more worker doesn't pay; those beyond the first few on demand."""
    if not sentences:
        return ""
    shown, others = sentences[:_WORTH_SHOWN], sentences[_WORTH_SHOWN:]
    more = _details(count_of(len(others), "more line"), _items(others)) if others else ""
    title = "<h3>Where one more worker stops paying</h3>"
    return f"{title}\n<p>{html_text(WORTH_RULE)}</p>\n{_items(shown)}{more}"


def _steps(traces: Sequence[Mapping[str, Any]]) -> str:
    """Chooser of a trial, and the place for its steps."""
    options = "".join(
        f'<option value="{number}"{" selected" if trace["is_opened"] else ""}>'
        f"{html_text(trace['label'])}</option>"
        for number, trace in enumerate(traces)
    )
    chooser = (
        '<p class="chooser on-screen"><label for="trial">Trial</label> '
        f'<select id="trial">{options}</select></p>\n'
    )
    empty = {"name": "steps", "title": "Step times of the chosen trial", "subtitle": "", "note": ""}
    return chooser + _figure(empty | {"description": ""})


def _points(view: dict[str, Any]) -> list[tuple[str, str, str]]:
    if not view["table"]["ids"]:
        return []
    body = f"{_items(view['terms'])}\n{points_of(view['table'])}"
    if view["frontiers"]:
        words = [
            f"<li><strong>{html_text(one['name'])}</strong>: "
            f"{_prose(' '.join(one['sentences']))}</li>"
            for one in view["frontiers"]
        ]
        body += f"<h3>Frontiers in words</h3>\n<ul>\n{''.join(words)}\n</ul>"
    return [("points", "Points", _section("points", "Points", body))]


def _warnings(view: dict[str, Any]) -> str:
    """All doubts, contradictions, and flags with their meanings."""
    body = _items(view["doubts"]) if view["doubts"] else ""
    if view["implausible"]:
        body += f"<h3>Numbers that contradict each other</h3>\n{_items(view['implausible'])}"
    if view["flags"]:
        columns = {
            "flag": [row["flag"] for row in view["flags"]],
            "trials": [str(row["count"]) for row in view["flags"]],
            "meaning": [row["meaning"] for row in view["flags"]],
        }
        body += f"<h3>Flags of trials</h3>\n{table_of('Flags of trials', columns)}"
    return _section("warnings", "Warnings", body)


def _failures(view: dict[str, Any]) -> str:
    """Trials that are not ok, by status; those that were skipped on purpose are on demand."""
    return _section("failures", "Not measured", "\n".join(map(_failures_of, view["failures"])))


def _failures_of(group: Mapping[str, Any]) -> str:
    """Trials of one status: the number of trials, and the log of one, for each reason."""
    columns = {
        "trials": [str(row["count"]) for row in group["rows"]],
        "reason": [row["reason"] for row in group["rows"]],
        "log": [row["log"] for row in group["rows"]],
    }
    if not any(columns["log"]):
        del columns["log"]
    title = f"{group['status']}: {group['count']} ({group['meaning']})"
    reasons = columns["reason"]
    if group["status"] == "skipped":
        title = f"skipped: {group['count']}: {reasons[0]}"
        if len(reasons) > 1:
            title += f", and {count_of(len(reasons) - 1, 'more reason')}"
    table = table_of(f"Trials with status {group['status']}, by reason", columns)
    if group["status"] == "skipped":
        return _details(title, table)
    return f"<h3>{html_text(title)}</h3>\n{table}"


def _how(view: dict[str, Any]) -> str:
    """Settings that all points share, notes, limits of all points, and further sections."""
    body = ""
    if view["constants"]:
        shared = ", ".join(f"{name}={value}" for name, value in view["constants"].items())
        body += f"<p>In all points: {html_text(shared)}.</p>"
    if view["notes"]:
        body += _items(view["notes"])
    if view["limits"]:
        body += f"<h3>Limits of points</h3>\n{_items(view['limits'])}"
    for text in view["sections"]:
        body += f'<pre tabindex="0">{html_text(text)}</pre>'
    return _section("how", "How it was measured", body)


def _machine(view: dict[str, Any]) -> str:
    rows = "\n".join(
        f"<div><dt>{html_text(row['name'])}</dt>"
        f"<dd>{html_text(', '.join(row['values']))}</dd></div>"
        for row in view["machine"]
    )
    if not rows:
        return ""
    return _section("machine", "Machine and versions", f'<dl class="facts">\n{rows}\n</dl>')


def _prose(text: str) -> str:
    """Sentences of the report: code stands in backquotes, lines after the first explain it."""
    return _CODE.sub(r"<code>\1</code>", html_text(text)).replace("\n", "<br>")


def _items(texts: Sequence[str]) -> str:
    """List of sentences."""
    items = [_prose(text) for text in texts]
    return "<ul>\n" + "\n".join(f"<li>{item}</li>" for item in items) + "\n</ul>"


def _details(summary: str, body: str) -> str:
    return f"<details><summary>{html_text(summary)}</summary>\n{body}\n</details>"


def table_of(caption: str, columns: Mapping[str, Sequence[str]]) -> str:
    """Table with a caption for screen readers, in a box that scrolls by itself.

    Args:
        caption: of the table.
        columns: header to cells, all of one length.
    """
    head = "".join(f'<th scope="col">{html_text(header)}</th>' for header in columns)
    rows = "\n".join(
        f"<tr>{''.join(f'<td>{_prose(cell)}</td>' for cell in row)}</tr>"
        for row in zip(*columns.values(), strict=True)
    )
    return (
        f'<div class="scroll" role="region" aria-label="{html_text(caption)}" tabindex="0"><table>'
        f'<caption class="unseen">{html_text(caption)}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>"
    )
