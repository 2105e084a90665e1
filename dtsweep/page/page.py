"""The page of some results: computed, redacted, and written whole."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from dtsweep.analysis.load import load
from dtsweep.analysis.study import Study
from dtsweep.errors import SweepError
from dtsweep.page.document import document_of
from dtsweep.page.traces import traces_of
from dtsweep.page.view import redacted_view, view_of
from dtsweep.privacy import Redactor, redactor_for
from dtsweep.report.certificate import certificate_in
from dtsweep.report.content import Content, Section
from dtsweep.report.costs import costs_of
from dtsweep.report.importance_words import importance_of_axes
from dtsweep.report.node_table import speeds_of_nodes
from dtsweep.report.redacted import redacted_content_of
from dtsweep.results.store import Results, frame_of


def page_of(
    results: str | Results,
    *,
    with_hosts: bool = False,
    refresh_s: float | None = None,
    **asked: Any,
) -> str:
    """Make the page of some results.

    Args:
        results: the place, or its store.
        with_hosts: keep names of hosts.
        refresh_s: seconds after which the page loads itself again; None for never.
        asked: arguments of `dtsweep.report.content_of`; `sections` are in addition to the usual
            ones: the speeds of nodes, the cost, the axes' importance and the certificate.

    Raises:
        SweepError: Nothing is stored there, or a condition can't be read.
        StorageError: It can't be read.
    """
    store = results if isinstance(results, Results) else Results(results)
    sections: list[Callable[[Study], Section]] = [
        speeds_of_nodes(store),
        costs_of(store),
        importance_of_axes,
        certificate_in(store),
    ]
    sections += asked.pop("sections", ())
    redactor = redactor_for(store, with_hosts=with_hosts)
    study = Study(load(store, canaries=True))
    content = redacted_content_of(study, redactor, sections=sections, **asked)
    return page_of_content(content, store, redactor, refresh_s=refresh_s)


def page_of_content(
    content: Content, store: Results, redactor: Redactor, *, refresh_s: float | None = None
) -> str:
    """Make the page of a report that is computed already.

    Args:
        content: of the report, made by `redacted_content_of`.
        store: of the results.
        redactor: of these results, by which the content was made.
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
    return document_of(redacted_view(view, redactor))


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
