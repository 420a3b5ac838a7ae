#!/usr/bin/env python3
"""Makes a folder that apt can install from, out of Debian packages.

  tools/make_apt.py --out build/dist/apt [--key KEY] FILE.deb...

With --key (what gpg knows it by), the list is signed; its public half is written next to it:

  deb [signed-by=/path/weft.gpg] file:/path/to/apt stable main
"""

import argparse
import email.utils
import gzip
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import time

SUITE, COMPONENT = "stable", "main"


def fields_of(deb):
    shown = subprocess.run(["dpkg-deb", "-f", deb], capture_output=True, text=True, check=True)
    return shown.stdout.strip("\n")


def digests(data):
    return {name: getattr(hashlib, kind)(data).hexdigest()
            for name, kind in (("MD5Sum", "md5"), ("SHA256", "sha256"))}


def write_pool(out, debs):
    """The packages; their entries in the list by architecture."""
    entries = {}
    for deb in debs:
        fields = fields_of(deb)
        architecture = next(line.split(": ")[1] for line in fields.splitlines()
                            if line.startswith("Architecture: "))
        place = pathlib.Path("pool") / COMPONENT / deb.name
        (out / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(deb, out / place)
        data = deb.read_bytes()
        entry = f"{fields}\nFilename: {place}\nSize: {len(data)}\nSHA256: {digests(data)['SHA256']}\n"
        entries.setdefault(architecture, []).append(entry)
    return entries


def write_lists(out, entries):
    """Packages of each architecture; what Release says of them."""
    listed = {}
    for architecture, own in entries.items():
        name = f"{COMPONENT}/binary-{architecture}/Packages"
        data = "\n".join(own).encode()
        for suffix, content in (("", data), (".gz", gzip.compress(data, mtime=0))):
            path = out / "dists" / SUITE / (name + suffix)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            listed[name + suffix] = content
    return listed


def write_release(out, architectures, listed):
    date = email.utils.formatdate(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())), usegmt=True)
    lines = ["Origin: Weft", "Label: Weft", f"Suite: {SUITE}", f"Codename: {SUITE}", f"Date: {date}",
             f"Architectures: {' '.join(sorted(architectures))}", f"Components: {COMPONENT}"]
    for kind in ("MD5Sum", "SHA256"):
        lines.append(f"{kind}:")
        lines += [f" {digests(data)[kind]} {len(data)} {name}" for name, data in listed.items()]
    path = out / "dists" / SUITE / "Release"
    path.write_text("\n".join(lines) + "\n")
    return path


def sign(out, release, key):
    gpg = ["gpg", "--batch", "--yes", "--local-user", key]
    subprocess.run([*gpg, "--clearsign", "--output", release.parent / "InRelease", release],
                   check=True)
    subprocess.run([*gpg, "--armor", "--detach-sign", "--output", release.parent / "Release.gpg",
                    release], check=True)
    public = subprocess.run(["gpg", "--batch", "--export", key], capture_output=True, check=True)
    (out / "weft.gpg").write_bytes(public.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("debs", nargs="+", type=pathlib.Path, metavar="FILE.deb")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--key")
    args = parser.parse_args()
    shutil.rmtree(args.out, ignore_errors=True)
    entries = write_pool(args.out, args.debs)
    release = write_release(args.out, entries, write_lists(args.out, entries))
    if args.key:
        sign(args.out, release, args.key)


if __name__ == "__main__":
    sys.exit(main())
