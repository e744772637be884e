"""The class of all commands: options are given once, and errors name options instead of Python arguments."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from contextvars import ContextVar
from typing import Any

from typer.core import TyperCommand

from selfcal.errors import ConfigError

_OPTIONS = {"kinds": "--kind", "n_networks": "--one-network", "n_jobs": "--jobs"}
"""Options whose names differ from the argument that they set."""

_running: ContextVar[tuple[str, ...]] = ContextVar("_running", default=())
"""The command that is running, as it was typed."""

_WITHOUT_EFFECT = {
    **dict.fromkeys(("--out", "--report", "--jobs", "--sums"), 1),
    **dict.fromkeys(("--force", "--resume", "--json", "--progress"), 0),
}
"""Options that do not change what is computed, with the number of their values."""


def typed() -> str:
    """The running command as it was typed, without folders of this machine and options that only say where to."""
    words, skip = ["selfcal"], 0
    for word in _running.get():
        name, given, _ = word.partition("=")
        if skip or name in _WITHOUT_EFFECT:
            skip = 0 if skip or given else _WITHOUT_EFFECT[name]
        else:
            words.append(os.path.basename(word) if os.path.isabs(word) else word)
    return shlex.join(words)


class Command(TyperCommand):
    """A command that refuses an option with one value that is given twice, and names options in its errors."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, after a check of the options among them."""
        _running.set((str(ctx.info_name), *args))
        parser = self.make_parser(ctx)
        try:
            _, _, given = parser.parse_args(args=list(args))
        except Exception as error:
            from selfcal._support.checks import closest

            if hasattr(error, "option_name") and hasattr(error, "possibilities"):
                names = (name for param in self.get_params(ctx) for name in param.opts)
                near = closest(error.option_name, names)
                error.possibilities = [] if near is None else [near]
            raise
        for param, times in Counter(given).items():
            if times > 1 and _takes_one_value(param):
                raise ConfigError(
                    f"{param.opts[0]} must be given once; got it {times} times. Keep the one that is meant."
                )
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            error.args = (self.with_option(ctx, str(error)),)
            raise

    def with_option(self, ctx: Any, message: str) -> str:
        """The message, with the option for the argument that it begins with, if there is one."""
        options = {
            param.name: param.opts[0] for param in self.get_params(ctx) if param.param_type_name == "option"
        }
        known = {name: option for name, option in _OPTIONS.items() if option in options.values()} | options
        found = re.match(r"([a-z_]+)(?:\['(.*?)'\])?(?=[ ,])", message)
        if found is None or found[1] not in known:
            return message
        return known[found[1]] + (f" {found[2]}" if found[2] else "") + message[found.end() :]


def _takes_one_value(param: Any) -> bool:
    return param.param_type_name == "option" and not (param.multiple or param.is_flag)
