"""
Continuous batching: which sequences the model works on in each step.

A sequence joins the batch and leaves it between any two steps. In a step, each sequence whose prompt was read gets one
more token, and the next part of each other prompt is read. So a long prompt does not stop the other sequences, and the
memory for it is limited. The batch has a slot of the cache for each of its sequences. If all slots are in use, further
sequences wait, in the order of their arrival.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from transformer import Array

from .generation import Detail, EngineError, Event, Expired, Failed, Generated, Request, Started, StopReason
from .sampling import Sampler, detail
from .vocabulary import Vocabulary

PART = 128  # number of tokens of a prompt that are read in one step


class Forward(Protocol):
    """The forward pass of a model with a cache of several sequences. See `model.Model`."""

    def prefill(self, slot: int, tokens: Sequence[int], start: int) -> Array:
        """Read a part of a sequence into a slot, from a position on, and return the scores after each of its tokens."""

    def decode(self, slots: Sequence[int], tokens: Sequence[int], positions: Sequence[int]) -> Array:
        """Add a token to each of several sequences, and return the scores after each of these tokens."""


class Job:
    """A request that waits or is in the batch. `arrival` and `deadline` are times in seconds of one clock."""

    def __init__(self, request: Request, vocabulary: Vocabulary, arrival: float) -> None:
        options = request.options
        self.request = request
        self.slot = -1  # while the job waits
        self.last_token = -1
        self.deadline = None if options.time_limit is None else arrival + options.time_limit
        self._vocabulary = vocabulary
        self._sampler = Sampler(options, request.tokens, len(vocabulary))
        self._details: list[Detail | None] = [None] if options.input_details else []
        self._read = 0  # number of tokens of the prompt
        self._count = 0  # of generated tokens
        self._tail = ""  # the end of the generated text, as long as the longest stop sequence
        self._tail_length = max(map(len, options.stop_sequences), default=0)

    @property
    def position(self) -> int:
        """The position of the last token in the sequence."""
        return len(self.request.tokens) + self._count - 1

    def read(self, model: Forward) -> Array:
        """Read the next part of the prompt, and return the scores after its last token."""
        start, tokens = self._read, self.request.tokens
        scores = model.prefill(self.slot, tokens[start : start + PART], start)
        self._read += len(scores)
        if self.request.options.input_details:
            following = tokens[start + 1 : self._read + 1]
            pairs = zip(scores.astype(np.float64), following, strict=False)  # nothing follows the last token
            self._details += [detail(row, token, self.request.options.top_tokens) for row, token in pairs]
        last: Array = scores[-1]
        return last

    def started(self) -> Event | None:
        """Return the event for the prompt, or None as long as parts of it are not read."""
        return Started(input_details=self._details) if self._read == len(self.request.tokens) else None

    def advance(self, scores: Array, now: float) -> Event:
        """Choose the next token from the scores of its position, and return its event."""
        precise = scores.astype(np.float64)
        if not math.isfinite(precise.sum()):  # quicker than a test of each score
            return Failed(error=EngineError("the model computed a score that is not a finite number"))
        options = self.request.options
        self.last_token = self._sampler.choose(precise)
        self._count += 1
        stop_sequence = self._completed_stop_sequence()
        return Generated(
            token=self.last_token,
            detail=detail(precise, self.last_token, options.top_tokens) if options.details else None,
            stop_reason=StopReason.STOP_SEQUENCE if stop_sequence else self._reached_limit(now),
            stop_sequence=stop_sequence,
        )

    def _completed_stop_sequence(self) -> str:
        """Return the longest stop sequence with which the text ends now, or an empty text."""
        options = self.request.options
        if not self._tail_length:
            return ""
        self._tail = (self._tail + self._vocabulary.characters[self.last_token])[-self._tail_length :]
        if self._count < options.min_new_tokens:
            return ""
        return max(filter(self._tail.endswith, options.stop_sequences), key=len, default="")

    def _reached_limit(self, now: float) -> StopReason | None:
        if self._count == self.request.length:
            return self.request.length_reason
        if self.deadline is not None and now >= self.deadline:
            return StopReason.TIME_LIMIT
        return None


class Batch:
    """The running and the waiting jobs of a model whose cache has some slots."""

    def __init__(self, model: Forward, slots: int) -> None:
        self._model = model
        self._free = list(range(slots))
        self._running: list[Job] = []
        self._reading: list[Job] = []
        self._waiting: deque[Job] = deque()

    @property
    def has_jobs(self) -> bool:
        """Whether a step would do something."""
        return bool(self._running or self._reading or self._waiting)

    def add(self, job: Job) -> None:
        """Let a job join as soon as a slot is free."""
        self._waiting.append(job)

    def remove(self, job: Job) -> None:
        """Forget a job, if it has not ended yet."""
        if job in self._waiting:
            self._waiting.remove(job)
        for with_slots in (self._running, self._reading):
            if job in with_slots:
                with_slots.remove(job)
                self._free.append(job.slot)

    def step(self, now: float) -> list[tuple[Job, Event]]:
        """Generate a token for each running job, let others join, and return what happened, in this order."""
        events: list[tuple[Job, Event]] = []

        def record(job: Job, event: Event) -> None:
            events.append((job, event))
            if event.is_last:
                self.remove(job)

        for job in [*self._reading, *self._waiting]:
            if job.deadline is not None and now >= job.deadline:
                record(job, Expired())
        running = list(self._running)
        if running:
            scores = self._model.decode(
                [job.slot for job in running], [job.last_token for job in running], [job.position for job in running]
            )
            for job, row in zip(running, scores, strict=True):
                record(job, job.advance(row, now))
        for _ in range(min(len(self._waiting), len(self._free))):
            job = self._waiting.popleft()
            job.slot = self._free.pop()
            self._reading.append(job)
        for job in list(self._reading):
            last_scores = job.read(self._model)
            started = job.started()
            if started:
                self._reading.remove(job)
                self._running.append(job)
                record(job, started)
                record(job, job.advance(last_scores, now))
        return events
