"""The libraries of this feature."""

from typing import Final

from toolbox.ground.system.extras import Extra

EXTRA: Final = Extra("notifications", ("httpx",))
