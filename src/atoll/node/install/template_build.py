"""Built-in templates: built once per machine into an archive, then imported into the pool of each server.

An import works in `.tmp-<name>` and shows by a rename; the manifest `<name>.json` comes last, so a template whose
manifest carries the right key is whole.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable
from pathlib import Path

from atoll.node.disks import btrfs
from atoll.node.disks.pool import Pool
from atoll.node.install import debian, definitions, python_packages, workplace
from atoll.node.install.definitions import Definition
from atoll.node.install.layout import Layout

_USER_ID = 1000
_ARCHIVE_OPTIONS = ("--numeric-owner", "--xattrs", "--acls")
_MODES = {"/etc/sudoers.d/user": 0o440}
# Devices come from the sandbox, caches and logs from the build; the apt options are those of the build, too.
_NOT_ARCHIVED = (
    "./dev/*",
    "./tmp/*",
    "./run/*",
    "./var/cache/apt/*",
    "./var/log/*",
    "./etc/apt/apt.conf.d/99mmdebstrap",
)


def ensure(name: str, layout: Layout, pool: Pool, say: Callable[[str], None]) -> None:
    """The template in the pool, of this version's definition; the caller has its turn (`workplace.turn`)."""
    if is_current(name, layout, pool):
        say(f"template {name}: ready")
        return
    definition = definitions.template(name)
    archive = layout.template_archive(name)
    if not archive.exists():
        if definition.parent and not is_current(definition.parent, layout, pool):
            ensure(definition.parent, layout, pool, say)
        say(f"template {name}: building, {definition.build_duration} ...")
        _build(definition, layout, pool, archive)
    say(f"template {name}: importing, some seconds ...")
    _import(definition, layout, pool, archive)
    say(f"template {name}: ready")


def is_current(name: str, layout: Layout, pool: Pool) -> bool:
    try:
        manifest = json.loads(_manifest_path(pool, name).read_bytes())
    except (OSError, ValueError):
        return False
    wanted = definitions.template_key(name, layout.machine)
    return bool(manifest.get("key") == wanted) and btrfs.is_subvolume(pool.root / "templates" / name)


def _build(definition: Definition, layout: Layout, pool: Pool, archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with workplace.folder(layout.work_dir(), definition.name) as work:
        if definition.parent:
            root = pool.root / "templates" / f".tmp-build-{definition.name}"
            _discard(root)
            btrfs.snapshot_create(pool.template_path(definition.parent), root)
            if definition.packages:
                debian.add(definition.packages, definitions.host_suite(), root, work)
        else:
            root = work / "root"
            debian.build(definition, definitions.host_suite(), root, work)
        try:
            if definition.requirements:
                requirements = definitions.file_bytes("templates", definition.requirements)
                python_packages.install(requirements, root, work, layout.machine)
            _overlay(definition, root)
            if not definition.parent:
                _furnish(definition, root)
            if definition.prepare:
                _prepare(definition, root, work)
            _archive(root, archive, work)
        finally:
            _discard(root)


def _overlay(definition: Definition, root: Path) -> None:
    """Our own files, over what packages bring."""
    for path, content in definitions.overlay(definition.name):
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)  # it may be a link, and must not be written through
        target.write_bytes(content)
        os.chmod(target, _MODES.get(path, 0o644))


def _furnish(definition: Definition, root: Path) -> None:
    """What packages do not bring: the user and the folders every program expects."""
    if (root / "usr/sbin/useradd").exists():
        words = ["--uid", str(_USER_ID), "--user-group", "--create-home", "--shell", "/bin/bash", definition.user]
        workplace.run_contained(["chroot", root, "useradd", *words])
    if (root / "bin/busybox").exists():
        workplace.run_contained(["chroot", root, "/bin/busybox", "--install", "-s", "/bin"])
    for folder, mode in (
        ("dev", 0o755),
        ("proc", 0o555),
        ("sys", 0o555),
        ("run", 0o755),
        ("tmp", 0o1777),
        ("root", 0o700),
    ):
        (root / folder).mkdir(exist_ok=True)
        os.chmod(root / folder, mode)
    home = root / definition.workdir.lstrip("/")
    home.mkdir(parents=True, exist_ok=True)
    os.chown(home, _USER_ID, _USER_ID)


def _prepare(definition: Definition, root: Path, work: Path) -> None:
    own = [f"--reuid={_USER_ID}", f"--regid={_USER_ID}", "--clear-groups"]
    workplace.run_logged(
        ["unshare", "--mount", f"--root={root}", "--mount-proc", "setpriv", *own, *definition.prepare],
        env={**definition.env, "HOME": definition.workdir},
        log=work / "prepare.log",
    )


def _archive(root: Path, archive: Path, work: Path) -> None:
    unfinished = archive.with_suffix(".tmp")
    excluded = [f"--exclude={pattern}" for pattern in _NOT_ARCHIVED]
    workplace.run_logged(
        [
            *("tar", "--create", f"--file={unfinished}", "--use-compress-program=zstd -T0 -3", "--sort=name"),
            *(*_ARCHIVE_OPTIONS, *excluded, f"--directory={root}", "."),
        ],
        log=work / "archive.log",
    )
    os.rename(unfinished, archive)


def _import(definition: Definition, layout: Layout, pool: Pool, archive: Path) -> None:
    templates = pool.root / "templates"
    unfinished, old, final = (templates / f"{prefix}{definition.name}" for prefix in (".tmp-", ".old-", ""))
    for leftover in (unfinished, old):
        _discard(leftover)
    btrfs.subvolume_create(unfinished)
    workplace.run_contained(
        [
            *("tar", "--extract", f"--file={archive}", "--use-compress-program=zstd -T0", "--preserve-permissions"),
            *(*_ARCHIVE_OPTIONS, f"--directory={unfinished}"),
        ]
    )
    btrfs.sync(templates)
    btrfs.read_only_set(unfinished, True)
    _manifest_path(pool, definition.name).unlink(missing_ok=True)
    if final.exists():
        os.rename(final, old)
    os.rename(unfinished, final)
    _manifest_write(definition, layout, pool)
    _discard(old)


def _manifest_write(definition: Definition, layout: Layout, pool: Pool) -> None:
    manifest = {
        "name": definition.name,
        "key": definitions.template_key(definition.name, layout.machine),
        "user": definition.user,
        "workdir": definition.workdir,
        "env": definition.env,
        "warm": definition.warm,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    path = _manifest_path(pool, definition.name)
    unfinished = path.with_suffix(".json.tmp")
    with open(unfinished, "w") as file:
        json.dump(manifest, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    os.rename(unfinished, path)


def _manifest_path(pool: Pool, name: str) -> Path:
    return pool.root / "templates" / f"{name}.json"


def _discard(path: Path) -> None:
    if btrfs.is_subvolume(path):
        btrfs.subvolume_delete(path)
    elif path.exists():
        workplace.remove(path)
