"""Runs the commands of one document in a folder of its own, in the order in which a reader types them."""

import os
import shutil
import subprocess
import tempfile

LIMIT_S = 300  # for one command


class DocumentSession:
    """A DocumentSession is a folder in which `weir`, `tools/…` and `docs/…` mean the same as in a checkout."""

    def __init__(self, root, program):
        self.folder = tempfile.mkdtemp(prefix="weir-document-")
        for name in ("docs", "tools"):
            os.symlink(os.path.join(root, name), os.path.join(self.folder, name))
        programs = os.path.join(self.folder, "bazel-bin", "tools")
        os.makedirs(programs)
        os.symlink(program, os.path.join(programs, "weir"))
        # As in a reader's shell, the modules of this test are not on Python's path.
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self.environment.update(PATH=f"{programs}:{os.environ.get('PATH', '/usr/bin:/bin')}", TERM="dumb")

    def close(self):
        shutil.rmtree(self.folder)

    def write(self, name, content):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(content)

    def run(self, text):
        """Runs a command and returns (exit code, lines of standard output and standard error as they came)."""
        result = subprocess.run(["bash", "-o", "pipefail", "-c", text], cwd=self.folder, env=self.environment,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                timeout=LIMIT_S, check=False)
        return result.returncode, result.stdout.decode("utf-8", "replace").splitlines()
