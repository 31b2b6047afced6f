"""The libraries of this feature: one for each forge, so each forge has an extra of its own."""

from typing import Final

from toolbox.ground.system.extras import Extra

GITHUB: Final = Extra("github", ("github",))
GITLAB: Final = Extra("gitlab", ("gitlab",))
