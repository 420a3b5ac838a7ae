#!/usr/bin/env python3
"""Makes what people install from a build: a tarball, a Python wheel, npm packages.

  tools/make_dist.py --build build/release --out build/dist [--documents build/release]
                     [--machine x86_64] [--sysroot DIR] [--strip PROGRAM]

WEFT-VERSION-linux-MACHINE.tar.xz has the program with the shared libraries that it needs and their
loader, so that it starts on any Linux of that machine, whatever its libraries are. The wheel
(weft-serve) and the npm packages (weft-serve, and weft-serve-linux-MACHINE that it chooses) hold the
same tree and a launcher. Next to them lie an SBOM (SPDX) and SHA256SUMS.

Equal builds give equal files: members are sorted, owned by nobody and dated SOURCE_DATE_EPOCH, by
default the time of the last commit.
"""

import argparse
import base64
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUMMARY = "Inference server for many conversations on one language model"
NPM_MACHINES = {"x86_64": "x64", "aarch64": "arm64"}
# The program and the library folder, below PREFIX/lib/weft. The loader is named like the program,
# because tools such as ps show its name.
LOADER, PROGRAM = "weft", "weft.program"

LAUNCHER = """#!/bin/sh
# Starts Weft with the libraries that came with it.
here=$(dirname "$(readlink -f "$0")")/../lib/weft
if [ -z "${SSL_CERT_FILE:-}" ] && [ ! -e /etc/ssl/certs/ca-certificates.crt ]; then
  # Where distributions other than Debian have the certificates of authorities.
  for file in /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem; do
    if [ -e "$file" ]; then export SSL_CERT_FILE="$file"; break; fi
  done
fi
exec "$here/weft" --library-path "$here" --argv0 "$0" "$here/weft.program" "$@"
"""

WHEEL_MAIN = '''"""Starts the weft that this package carries."""

import os
import pathlib
import sys


def main():
    weft = str(pathlib.Path(__file__).parent / "tree" / "bin" / "weft")
    os.execv(weft, [weft, *sys.argv[1:]])


if __name__ == "__main__":
    main()
'''

NPM_MAIN = """#!/usr/bin/env node
// Starts the weft of the package for this machine.
const { spawn } = require("node:child_process");
const name = `weft-serve-${process.platform}-${process.arch}`;
let weft;
try {
  weft = require.resolve(`${name}/tree/bin/weft`);
} catch {
  console.error(`weft: there is no package ${name}: build from source, see the README`);
  process.exit(1);
}
const child = spawn(weft, process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("exit", (code, signal) => process.exit(signal ? 1 : code));
"""


def read_elf(path):
    """The names of the libraries that it needs, and its loader."""
    shown = subprocess.run(["readelf", "-dlW", path], capture_output=True, text=True,
                           check=True, env={**os.environ, "LC_ALL": "C"}).stdout
    loader = re.search(r"interpreter: ([^\]]+)\]", shown)
    return re.findall(r"\(NEEDED\).*\[([^\]]+)\]", shown), loader and loader.group(1)


class Libraries:
    """Finds shared libraries by name, of this system or of an unpacked one."""

    def __init__(self, machine, sysroot):
        triple = f"{machine}-linux-gnu"
        self.sysroot = sysroot
        self.folders = [sysroot / folder for folder in
                        (f"lib/{triple}", f"usr/lib/{triple}", "lib64", "usr/lib64", "lib",
                         "usr/lib", "usr/local/lib")]

    def find(self, name):
        for folder in self.folders:
            if (folder / name).exists():
                return (folder / name).resolve()
        raise SystemExit(f"make_dist: there is no {name} in {self.sysroot}: install it")

    def closure(self, program):
        """Name and file of each library that the program needs, and of its loader."""
        wanted, loader = read_elf(program)
        found, loader_name = {}, pathlib.Path(loader).name
        while wanted:
            name = wanted.pop()
            if name in found:
                continue
            found[name] = self.find(name)
            wanted += read_elf(found[name])[0]
        found.pop(loader_name, None)
        return found, self.find(loader_name)


def copy_stripped(source, target, strip):
    shutil.copyfile(source, target)
    target.chmod(0o755)
    subprocess.run([strip, "--strip-unneeded", target], check=True)


def stage(args, tree):
    """What a tarball unpacks to. Returns the libraries that are in it."""
    library = tree / "lib" / "weft"
    for folder in (library, tree / "bin", tree / "share" / "doc" / "weft",
                   tree / "lib" / "systemd" / "system"):
        folder.mkdir(parents=True)
    program = args.build / "weft"
    libraries, loader = Libraries(args.machine, args.sysroot).closure(program)
    copy_stripped(program, library / PROGRAM, args.strip)
    shutil.copyfile(loader, library / LOADER)
    (library / LOADER).chmod(0o755)
    for name, file in libraries.items():
        copy_stripped(file, library / name, args.strip)
    (tree / "bin" / "weft").write_text(LAUNCHER)
    (tree / "bin" / "weft").chmod(0o755)
    made = args.documents / "packaging"
    for source, target in (("weft.1.gz", "share/man/man1/weft.1.gz"),
                           ("weft.bash", "share/bash-completion/completions/weft"),
                           ("weft.zsh", "share/zsh/site-functions/_weft"),
                           ("weft.fish", "share/fish/vendor_completions.d/weft.fish")):
        (tree / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(made / source, tree / target)
    shutil.copyfile(ROOT / "packaging" / "weft.service",
                    tree / "lib" / "systemd" / "system" / "weft.service")
    for name in ("README.md", "CHANGELOG.md", "LICENSE"):
        shutil.copyfile(ROOT / name, tree / "share" / "doc" / "weft" / name)
    shutil.copyfile(ROOT / "web" / "LICENSES.txt", tree / "share/doc/weft/page-licenses.txt")
    return {**libraries, pathlib.Path(loader).name: loader}


def package_of(file):
    """Name and version of the Debian package that a library is of."""
    found = subprocess.run(["dpkg-query", "-S", file], capture_output=True, text=True)
    if found.returncode != 0:  # /lib is a link to /usr/lib
        found = subprocess.run(["dpkg-query", "-S", str(file).replace("/usr/lib", "/lib", 1)],
                               capture_output=True, text=True)
    if found.returncode != 0:
        return None
    name = found.stdout.split(":")[0].split(",")[0]
    version = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", name], capture_output=True,
                             text=True).stdout
    return name, version


def packages_of(files, sysroot):
    """Those of this system, or of an unpacked one, which tools/cross_sysroot.sh has listed."""
    if sysroot == pathlib.Path("/"):
        return {owner_of(file, package_of(file)) for file in files}
    lines = (line.split(" ", 2) for line in (sysroot / ".owners").read_text().splitlines())
    owners = {path: (name, version) for name, version, path in lines}
    return {owner_of(file, owners.get(file.relative_to(sysroot.resolve()).as_posix()))
            for file in files}


def owner_of(file, package):
    if package is None:
        sys.exit(f"make_dist: no package of Debian owns {file}")
    return package


def sbom(version, packages, date):
    """In SPDX: Weft, and the packages of the libraries that it carries."""
    entries = [("weft", version, "Apache-2.0")]
    entries += [(name, of, "NOASSERTION") for name, of in sorted(packages)]
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
            "name": f"weft-{version}",
            "documentNamespace": f"https://spdx.org/spdxdocs/weft-{version}-{date}",
            "creationInfo": {"created": date, "creators": ["Tool: make_dist.py"]},
            "packages": [{"SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name),
                          "name": name, "versionInfo": of, "downloadLocation": "NOASSERTION",
                          "licenseConcluded": licence, "filesAnalyzed": False}
                         for name, of, licence in entries]}


def files_of(tree):
    """Relative name, contents and whether it is a program, in order."""
    for path in sorted(tree.rglob("*")):
        if path.is_file():
            yield (path.relative_to(tree).as_posix(), path.read_bytes(),
                   bool(path.stat().st_mode & stat.S_IXUSR))


def write_tar(out, files, epoch, compress):
    with tempfile.TemporaryFile() as plain:
        with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name, data, is_program in files:
                member = tarfile.TarInfo(name)
                member.size, member.mtime = len(data), epoch
                member.mode = 0o755 if is_program else 0o644
                tar.addfile(member, io.BytesIO(data))
        plain.seek(0)
        compress(plain, out)


def compress_xz(plain, out):
    with open(out, "wb") as file:
        subprocess.run(["xz", "-9e", "--stdout"], stdin=plain, stdout=file, check=True)


def compress_gzip(plain, out):
    with open(out, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        shutil.copyfileobj(plain, packed)


def write_wheel(args, tree, epoch):
    # It carries its own C library, so it runs on whatever pip takes for a Linux.
    tag = f"py3-none-manylinux_2_17_{args.machine}"
    info = f"weft_serve-{args.version}.dist-info"
    files = [("weft_serve/__init__.py", b"", False),
             ("weft_serve/__main__.py", WHEEL_MAIN.encode(), False)]
    files += [(f"weft_serve/tree/{name}", data, is_program)
              for name, data, is_program in files_of(tree)]
    readme = (ROOT / "README.md").read_text()
    files += [(f"{info}/METADATA",
               (f"Metadata-Version: 2.1\nName: weft-serve\nVersion: {args.version}\n"
                f"Summary: {SUMMARY}\nLicense: Apache-2.0\nRequires-Python: >=3.8\n"
                f"Description-Content-Type: text/markdown\n\n{readme}").encode(), False),
              (f"{info}/WHEEL", (f"Wheel-Version: 1.0\nGenerator: make_dist\n"
                                 f"Root-Is-Purelib: false\nTag: {tag}\n").encode(), False),
              (f"{info}/entry_points.txt",
               b"[console_scripts]\nweft = weft_serve.__main__:main\n"
               b"weft-serve = weft_serve.__main__:main\n", False)]
    record = ""
    for name, data, _ in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files.append((f"{info}/RECORD", (record + f"{info}/RECORD,,\n").encode(), False))
    date = time.gmtime(max(epoch, 315532800))[:6]
    out = args.out / f"weft_serve-{args.version}-{tag}.whl"
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for name, data, is_program in files:
            member = zipfile.ZipInfo(name, date)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = (0o100755 if is_program else 0o100644) << 16
            wheel.writestr(member, data)
    return out


def write_npm(args, tree, epoch):
    machine = NPM_MACHINES[args.machine]
    platform = f"weft-serve-linux-{machine}"
    common = {"version": args.version, "description": SUMMARY, "license": "Apache-2.0"}

    def pack(name, manifest, files):
        manifest = json.dumps({"name": name, **common, **manifest}, indent=2) + "\n"
        out = args.out / f"{name}-{args.version}.tgz"
        write_tar(out, [("package/package.json", manifest.encode(), False),
                        *((f"package/{path}", data, mode) for path, data, mode in files)],
                  epoch, compress_gzip)
        return out

    optional = {f"weft-serve-linux-{name}": args.version for name in NPM_MACHINES.values()}
    return [pack(platform, {"os": ["linux"], "cpu": [machine]},
                 [(f"tree/{name}", data, mode) for name, data, mode in files_of(tree)]),
            pack("weft-serve", {"bin": {"weft": "weft.js", "weft-serve": "weft.js"},
                                "optionalDependencies": optional},
                 [("weft.js", NPM_MAIN.encode(), True),
                  ("README.md", (ROOT / "README.md").read_bytes(), False)])]


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--documents", type=pathlib.Path,
                        help="the build whose program wrote manual and completions (--build)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/dist")
    parser.add_argument("--machine", default=os.uname().machine, choices=NPM_MACHINES)
    parser.add_argument("--sysroot", type=pathlib.Path, default=pathlib.Path("/"))
    parser.add_argument("--strip", default="strip")
    args = parser.parse_args()
    args.documents = args.documents or args.build
    args.version = re.search(r"project\(weft VERSION ([0-9.]+)",
                             (ROOT / "CMakeLists.txt").read_text()).group(1)
    return args


def main():
    args = parse()
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True).stdout
    epoch = int(epoch or 0)
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder) / "tree"
        libraries = stage(args, tree)
        bill = json.dumps(sbom(args.version, packages_of(libraries.values(), args.sysroot), date),
                          indent=2) + "\n"
        (tree / "share/doc/weft/sbom.spdx.json").write_text(bill)
        name = f"weft-{args.version}-linux-{args.machine}"
        (args.out / f"{name}.spdx.json").write_text(bill)
        tarball = args.out / f"{name}.tar.xz"
        write_tar(tarball, ((f"{name}/{path}", data, mode) for path, data, mode in files_of(tree)),
                  epoch, compress_xz)
        made = [tarball, write_wheel(args, tree, epoch), *write_npm(args, tree, epoch)]
    sums = ""
    for path in sorted(args.out.iterdir()):
        if path.is_file() and path.name != "SHA256SUMS":
            sums += f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
    (args.out / "SHA256SUMS").write_text(sums)
    for path in made:
        print(f"{path.stat().st_size / 1e6:7.1f} MB  {path}")


if __name__ == "__main__":
    sys.exit(main())
