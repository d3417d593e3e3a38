#pragma once

namespace ssmbench {

/// Throws std::logic_error: a mistake in this program. For headers of kernels, which every CUDA file parses three
/// times: <stdexcept> costs each half a second.
[[noreturn]] void throw_logic_error(const char* what);

}  // namespace ssmbench
