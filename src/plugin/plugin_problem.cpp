#include "plugin/plugin_problem.h"

#include <algorithm>
#include <stdexcept>

namespace ssmbench {
namespace {

std::int32_t code_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return SSMBENCH_F32;
    case DType::f64:
      return SSMBENCH_F64;
    case DType::f16:
      return SSMBENCH_F16;
    case DType::bf16:
      return SSMBENCH_BF16;
    case DType::c64:
      return SSMBENCH_C64;
    case DType::i32:
      return SSMBENCH_I32;
    case DType::i64:
      return SSMBENCH_I64;
    case DType::i16:
      return SSMBENCH_I16;
    case DType::i8:
      return SSMBENCH_I8;
    case DType::e4m3:
      return SSMBENCH_E4M3;
  }
  throw std::logic_error("not a dtype");
}

std::int32_t code_of(Role role) {
  return role == Role::input ? SSMBENCH_INPUT : SSMBENCH_OUTPUT;
}

ssmbench_attribute attribute_of(const Problem& problem, const AxisSpec& axis) {
  ssmbench_attribute attribute{};
  if (axis.kind == AxisKind::size) attribute.integer = problem.size(axis.name);
  if (axis.kind == AxisKind::flag) attribute.integer = problem.flag(axis.name) ? 1 : 0;
  if (axis.kind == AxisKind::interval) {
    attribute.low = problem.interval(axis.name).low;
    attribute.high = problem.interval(axis.name).high;
  }
  return attribute;
}

}  // namespace

PluginProblem::PluginProblem(const Problem& problem) : op_(problem.op().name) {
  for (auto& spec : problem.tensors()) {
    const auto known = std::ranges::find(specs_, spec.name, &TensorSpec::name);
    if (known != specs_.end()) {  // updated in place
      tensors_[known - specs_.begin()].role |= code_of(spec.role);
      continue;
    }
    ssmbench_tensor tensor{};
    tensor.rank = static_cast<std::int32_t>(spec.shape.size());
    tensor.dtype = code_of(spec.dtype);
    tensor.role = code_of(spec.role);
    tensors_.push_back(tensor);
    strides_.push_back(spec.strides());
    specs_.push_back(std::move(spec));
  }
  for (const auto& axis : problem.op().axes) {
    if (!problem.has(axis)) continue;
    axes_.push_back({axis.name, to_string(problem.value(axis.name))});
    attributes_.push_back(attribute_of(problem, axis));
  }
  // Now that nothing moves any more.
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].name = specs_[i].name.c_str();
    tensors_[i].shape = specs_[i].shape.data();
    tensors_[i].strides = strides_[i].data();
  }
  for (std::size_t i = 0; i < attributes_.size(); ++i) {
    attributes_[i].name = axes_[i].name.c_str();
    attributes_[i].text = axes_[i].text.c_str();
  }
  view_ = {.op = op_.c_str(),
           .tensors = tensors_.data(),
           .attributes = attributes_.data(),
           .tensor_count = static_cast<std::int32_t>(tensors_.size()),
           .attribute_count = static_cast<std::int32_t>(attributes_.size()),
           .dtype = code_of(problem.dtype()),
           .reserved = 0};
}

PluginProblem::PluginProblem(const Problem& problem, const TensorSet& tensors) : PluginProblem(problem) {
  for (auto& tensor : tensors_) tensor.data = tensors.at(tensor.name).data;
}

}  // namespace ssmbench
