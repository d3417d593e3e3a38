#include "model/linear_scan.h"

#include "interchange/format.h"

namespace ssmbench {
namespace {

void infer_linear_scan(const StoredInputs& inputs, Axes& axes) {
  const Shape& a = inputs.shape("a", 3);
  axes["batch"] = a[0];
  axes["seqlen"] = a[1];
  axes["dim"] = a[2];
}

}  // namespace

const OpFormat& linear_scan_format() {
  static const OpFormat format{linear_scan(), {"dtype"}, infer_linear_scan};
  return format;
}

}  // namespace ssmbench
