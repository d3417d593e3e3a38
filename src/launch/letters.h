#pragma once

namespace ssmbench {

// What leader and relays write to each other: a letter's first byte says what the rest is.

enum class ToRelay : char {
  start = 'S',           ///< a worker
  order = 'O',           ///< bytes for it
  no_more_orders = 'N',  ///< for it
  end = 'E',             ///< it, after a grace of so many milliseconds
  dismiss = 'Q',         ///< the relay itself
};

enum class ToLeader : char {
  lines = 'L',   ///< of the worker, each with its newline
  closed = 'C',  ///< it will write no more
  ended = 'X',   ///< '1' if it is gone, its cause, a blank, and how
};

}  // namespace ssmbench
