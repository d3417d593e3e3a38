#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/expectation.h"
#include "model/tensor.h"
#include "verify/element.h"

namespace ssmbench {

/// An output of a file beside what it should be, element by element. Arrays are in logical order; complex
/// outputs are (real, imaginary) pairs with a last axis of 2, which has no letter in `axes`.
struct JudgedOutput {
  std::string name;
  DType dtype;
  Shape shape;
  std::string axes;  ///< as in TensorSpec
  std::vector<double> got;
  std::vector<ElementVerdict> elements;

  /// Position of the axis with this letter.
  std::optional<std::size_t> axis(char letter) const;
};

JudgedOutput judge_output(const HostTensor& output, const Expectation& expected,
                          const Arithmetic& arithmetic);

/// Elements of a tensor in logical order, complex ones as pairs.
std::vector<double> logical_values(const HostTensor& tensor);

}  // namespace ssmbench
