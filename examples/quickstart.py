"""The first program: a sandbox, a command, a file."""

from __future__ import annotations

from atoll import Sandbox

with Sandbox.create("code", timeout_s=300, env={"NAME": "Atoll"}) as sb:
    result = sb.commands.run('echo "Hello from $NAME"; python3 -c "print(6 * 7)"')
    print(result.stdout, end="")

    sb.files.write("/home/user/notes.txt", "kept until the sandbox ends\n")
    print(sb.files.read("/home/user/notes.txt"), end="")

    sb.commands.run("for i in 1 2 3; do echo tick $i; sleep 0.2; done", on_stdout=lambda text: print(text, end=""))
