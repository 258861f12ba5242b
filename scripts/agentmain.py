#!/usr/bin/env python3
"""Runs gasupervisor where a script expects GenericAgent's agentmain.py.

Put this file in place of agentmain.py, or call it by its path. Its arguments go
to gasupervisor as they are (--task, --func, --input, --llm_no, ...). Tasks and
journals lie beside this file, in temp/ and state/, unless a config.toml beside it,
or the environment, says otherwise. Agents may read memory/ beside this file; with such
a config.toml, only if it says so.

The program is found in the variable GASUPERVISOR, which holds its path, or on PATH.
Python 3.8 or later; nothing but the standard library.
"""

import os
import shutil
import subprocess
import sys


def find_binary():
    """Returns the path of the program, or ends with a message that says what to do."""
    named = os.environ.get("GASUPERVISOR")
    if named:
        found = shutil.which(os.path.expanduser(named))
        if found is None:
            sys.exit(fail("GASUPERVISOR is %s, which is no program that can be run" % named))
        return os.path.abspath(found)
    found = shutil.which("gasupervisor")
    if found is None:
        sys.exit(fail("gasupervisor is not on PATH; install it, or set GASUPERVISOR to its path"))
    return os.path.abspath(found)


def fail(message):
    """Prints a message and returns the exit code for it."""
    sys.stderr.write("agentmain.py: %s\n" % message)
    return 127


def environment(here):
    """Returns the environment in which temp/ and state/ lie beside this file."""
    env = dict(os.environ)
    config = os.path.join(here, "config.toml")
    if env.get("GASUPERVISOR_CONFIG"):
        env["GASUPERVISOR_CONFIG"] = os.path.abspath(env["GASUPERVISOR_CONFIG"])
    elif os.path.isfile(config) and names_temp_dir(config):
        env["GASUPERVISOR_CONFIG"] = config
    else:
        # The LLMs may be configured elsewhere; the directories are these.
        env.setdefault("GASUPERVISOR_TEMP_DIR", os.path.join(here, "temp"))
        env.setdefault("GASUPERVISOR_STATE_DIR", os.path.join(here, "state"))
        # GenericAgent's agents look things up in ../memory. They may read it, no more.
        memory = os.path.join(here, "memory")
        if os.path.isdir(memory):
            also = env.get("GASUPERVISOR_ALSO_READ")
            env["GASUPERVISOR_ALSO_READ"] = also + os.pathsep + memory if also else memory
    return env


def names_temp_dir(path):
    """Whether a config.toml is gasupervisor's and not another program's."""
    try:
        with open(path, encoding="utf-8-sig", errors="replace") as f:
            return any(line.split("=")[0].strip() == "temp_dir" for line in f)
    except OSError:
        return False


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    command = [find_binary()] + sys.argv[1:]
    env = environment(here)
    if os.name != "nt":
        # The same process: signals, exit code and "PID:" are the program's own.
        os.execve(command[0], command, env)
    try:
        return subprocess.call(command, env=env)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
