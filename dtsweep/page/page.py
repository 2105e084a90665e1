"""The page of some results: computed, and written whole."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dtsweep.analysis.load import load
from dtsweep.analysis.study import Study
from dtsweep.errors import SweepError
from dtsweep.escape import changed_texts
from dtsweep.page.document import document_of
from dtsweep.page.traces import traces_of
from dtsweep.page.view import view_of
from dtsweep.report.certificate import certificate_in
from dtsweep.report.content import Content, Section, content_of
from dtsweep.report.costs import costs_of
from dtsweep.report.importance_words import importance_of_axes
from dtsweep.report.node_table import speeds_of_nodes
from dtsweep.results.store import Results, frame_of
from dtsweep.secret import shared_trials, without_homes


def page_of(
    results: str | Results, *, with_hosts: bool = False, refresh_s: float | None = None
) -> str:
    """Make the page of some results.

    Args:
        results: the place, or its store.
        with_hosts: keep reasons, logs and the table of nodes, which may name hosts and users.
        refresh_s: seconds after which the page loads itself again; None for never.

    Raises:
        SweepError: Nothing is stored there, or a condition can't be read.
        StorageError: It can't be read.
    """
    store = results if isinstance(results, Results) else Results(results)
    sections: list[Callable[[Study], Section]] = [
        costs_of(store),
        importance_of_axes,
        certificate_in(store),
    ]
    frame = load(store, canaries=True)
    if with_hosts:
        sections.insert(0, speeds_of_nodes(store))
    else:
        frame = shared_trials(frame)
    content = content_of(Study(frame), sections=sections)
    return page_of_content(content, store, refresh_s=refresh_s)


def page_of_content(content: Content, store: Results, *, refresh_s: float | None = None) -> str:
    """Make the page of a report that is computed already.

    Args:
        content: of the report, made of `shared_trials` if others are to see the page.
        store: of the results.
        refresh_s: seconds after which the page loads itself again; None for never.
    """
    ranks = frame_of(store.table("ranks", attempts=set(content.study.frame["attempt_id"])))
    view = view_of(
        content,
        place=str(store),
        ranks=ranks,
        traces=traces_of(content, store),
        refresh_s=refresh_s,
    )
    return document_of(changed_texts(view, without_homes))


def write_page(page: str, file: str | Path) -> None:
    """Write a page whole: next to its place first, and then renamed, so that no half is ever read.

    Raises:
        SweepError: the file can't be written.
    """
    path = Path(file)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        part.write_text(page, "utf-8")
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise SweepError(
            f"{path} can't be written: {error.strerror}; name a file in a folder that exists"
        ) from None
