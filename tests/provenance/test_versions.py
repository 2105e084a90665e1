"""Revisions of a sweep's folder, and versions of packages."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dtsweep.provenance.revision import git_commit
from dtsweep.provenance.versions import package_versions, versions


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    command = ["git", *who, "-C", str(folder), *arguments]
    return subprocess.check_output(command, text=True).strip()


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A folder of a repository, with one file, committed."""
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "sweep.py").write_text("a = 1\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    return folder


def test_a_folder_has_the_commit_that_is_checked_out_and_an_edited_file_is_a_change(
    study: Path,
) -> None:
    commit = git(study, "rev-parse", "HEAD")[:12]
    # Changes beside the folder do not count.
    (study.parent / "other.py").write_text("")
    assert git_commit(study) == commit
    (study / "sweep.py").write_text("a = 2\n")
    assert git_commit(study) == f"{commit}+changes"
    git(study, "add", ".")
    assert git_commit(study) == f"{commit}+changes"
    (study / "sweep.py").unlink()
    assert git_commit(study) == f"{commit}+changes"


def test_new_code_is_a_change_and_new_results_are_none(study: Path) -> None:
    commit = git_commit(study)
    (study / "results").mkdir()
    (study / "results" / "trials.parquet").write_bytes(b"")
    assert git_commit(study) == commit
    (study / "parts").mkdir()
    (study / "parts" / "my model.py").write_text("")
    assert git_commit(study) == f"{commit}+changes"


def test_no_folder_no_repository_and_no_commit_have_none(tmp_path: Path) -> None:
    assert git_commit(None) is None
    assert git_commit(tmp_path) is None
    assert git_commit(tmp_path / "missing") is None
    git(tmp_path, "init", "--quiet")
    assert git_commit(tmp_path) is None


def test_without_git_there_is_none(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(study))
    assert git_commit(study) is None


def test_a_hook_of_another_repository_does_not_mislead(
    study: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = git_commit(study)
    other = tmp_path_factory.mktemp("other")
    git(other, "init", "--quiet")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert git_commit(study) == commit


def test_versions_name_python_and_what_is_installed() -> None:
    assert set(versions()) == {"python_version", "dtsweep_version", "torch_version", "ray_version"}


def test_a_package_is_known_by_what_it_is_imported_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = {"opencv_python": "cv2/__init__.py", "six_like": "six_like.py", "b": "cv2_like.py"}
    for name, module in modules.items():
        folder, project = tmp_path / f"{name}-1.5.dist-info", name.replace("_", "-")
        folder.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.5\n"
        (folder / "METADATA").write_text(metadata)
        (folder / "RECORD").write_text(f"{folder.name}/METADATA,,\n{module},sha256=x,1\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = package_versions(["cv2", "six_like", "missing"])
    assert found == {"cv2": "opencv-python 1.5", "six_like": "1.5"}
