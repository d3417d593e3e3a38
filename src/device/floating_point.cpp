#include "device/floating_point.h"

namespace ssmbench {

void reset_floating_point() {
#pragma omp parallel
  std::fesetenv(FE_DFL_ENV);
}

}  // namespace ssmbench
