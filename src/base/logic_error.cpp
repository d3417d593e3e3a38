#include "base/logic_error.h"

#include <stdexcept>

namespace ssmbench {

void throw_logic_error(const char* what) {
  throw std::logic_error(what);
}

}  // namespace ssmbench
