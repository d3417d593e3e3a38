// What XLA calls for an operation of libssmbench_kernels.so: typed-FFI handlers, for the CPU and for CUDA. ssmbench.jax
// compiles this file against the headers of the jaxlib that is installed, whose API checks its version.
//
// Attributes of a call: "op" and "implementation"; "axes", lines of NAME=VALUE; "dtype", that of the case by its number;
// "tensors", a word for each argument and then each result: its name, with a '+' where the result is the argument of that
// name, updated in place. A result "workspace" is scratch memory.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "ssmbench_plugin.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

/// Its functions may be called from several threads at once, as XLA does.
struct Library {
  decltype(&ssmbench_plugin_describe) describe;
  decltype(&ssmbench_plugin_workspace_bytes) workspace_bytes;
  decltype(&ssmbench_plugin_bind) bind;
  decltype(&ssmbench_plugin_launch) launch;
  decltype(&ssmbench_plugin_release) release;
};

Library library;

ffi::Error wrong(const std::string& what) {
  return ffi::Error(ffi::ErrorCode::kInvalidArgument, what);
}

/// The parts of a text between separators.
std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const auto end = std::min(text.find(separator), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

/// -1 where the library has none.
std::int32_t index_of(std::string_view op, std::string_view implementation) {
  const ssmbench_plugin* plugin = library.describe();
  for (std::int32_t i = 0; i < plugin->implementation_count; ++i)
    if (op == plugin->implementations[i].op && implementation == plugin->implementations[i].name)
      return plugin->first_index + i;
  return -1;
}

/// -1 where the library has none.
std::int32_t dtype_of(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F32:
      return SSMBENCH_F32;
    case ffi::DataType::F16:
      return SSMBENCH_F16;
    case ffi::DataType::BF16:
      return SSMBENCH_BF16;
    case ffi::DataType::C64:
      return SSMBENCH_C64;
    case ffi::DataType::S32:
      return SSMBENCH_I32;
    default:
      return -1;
  }
}

/// A problem, and the memory of what it points to.
class Call {
 public:
  void add_axis(const std::string& line) {
    const auto equals = line.find('=');
    names_.push_back(line.substr(0, equals));
    values_.push_back(line.substr(equals + 1));
  }

  /// Empty, or what is wrong.
  std::string add_tensor(const std::string& name, const ffi::AnyBuffer& buffer, bool is_result) {
    if (name == "workspace") {
      workspace_ = buffer.untyped_data();
      workspace_bytes_ = static_cast<std::int64_t>(buffer.size_bytes());
      return {};
    }
    const bool both = name.back() == '+';
    if (both && !is_result) return {};  // the result has its memory
    const std::int32_t dtype = dtype_of(buffer.element_type());
    if (dtype < 0) return name + " has a dtype that the library does not have";
    tensor_names_.push_back(both ? name.substr(0, name.size() - 1) : name);
    const auto extents = buffer.dimensions();
    shapes_.emplace_back(extents.begin(), extents.end());
    strides_.emplace_back(extents.size());
    std::int64_t step = 1;
    for (std::size_t axis = extents.size(); axis-- > 0;) {
      strides_.back()[axis] = step;
      step *= extents[axis];
    }
    const std::int32_t role = both        ? SSMBENCH_INPUT | SSMBENCH_OUTPUT
                              : is_result ? SSMBENCH_OUTPUT
                                          : SSMBENCH_INPUT;
    tensors_.push_back({nullptr, buffer.untyped_data(), nullptr, nullptr,
                        static_cast<std::int32_t>(extents.size()), dtype, role, 0});
    return {};
  }

  ffi::Error launch(const std::string& op, const std::string& implementation, std::int32_t dtype,
                    void* stream) {
    const std::int32_t index = index_of(op, implementation);
    if (index < 0) return wrong(implementation + " of " + op + " is not in this library");
    const ssmbench_problem problem = finished(op, dtype);
    // A program may have been compiled, and kept, with another version of the library.
    if (library.workspace_bytes(index, &problem) > workspace_bytes_)
      return wrong(implementation +
                   ": the workspace is of another version of the library; clear JAX's compilation cache");
    void* handle = nullptr;
    const char* error = library.bind(index, &problem, workspace_, &handle);
    if (error != nullptr) return wrong(implementation + ": " + error);
    error = library.launch(handle, stream);
    const ffi::Error result = error == nullptr ? ffi::Error::Success() : wrong(implementation + ": " + error);
    library.release(handle);  // kernels on the stream have their arguments by value
    return result;
  }

 private:
  ssmbench_problem finished(const std::string& op, std::int32_t dtype) {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const std::string& value = values_[i];
      ssmbench_attribute axis{};  // intervals are read from their text
      axis.name = names_[i].c_str();
      axis.text = value.c_str();
      axis.integer = value == "true" ? 1 : std::strtoll(value.c_str(), nullptr, 10);
      axes_.push_back(axis);
    }
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      tensors_[i].name = tensor_names_[i].c_str();
      tensors_[i].shape = shapes_[i].data();
      tensors_[i].strides = strides_[i].data();
    }
    return {op.c_str(),
            tensors_.data(),
            axes_.data(),
            static_cast<std::int32_t>(tensors_.size()),
            static_cast<std::int32_t>(axes_.size()),
            dtype,
            0};
  }

  std::vector<std::string> names_, values_, tensor_names_;
  std::vector<std::vector<std::int64_t>> shapes_, strides_;
  std::vector<ssmbench_tensor> tensors_;
  std::vector<ssmbench_attribute> axes_;
  void* workspace_ = nullptr;
  std::int64_t workspace_bytes_ = 0;
};

ffi::Error run(void* stream, ffi::RemainingArgs arguments, ffi::RemainingRets results, std::string_view op,
               std::string_view implementation, std::string_view axes, std::int32_t dtype,
               std::string_view tensors) {
  const auto names = split(tensors, ' ');
  if (names.size() != arguments.size() + results.size()) return wrong("tensors without names");
  Call call;
  for (const auto& line : split(axes, '\n')) call.add_axis(line);
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::string error;
    if (i < arguments.size()) {
      const auto buffer = arguments.get<ffi::AnyBuffer>(i);
      if (!buffer) return buffer.error();
      error = call.add_tensor(names[i], *buffer, false);
    } else {
      auto buffer = results.get<ffi::AnyBuffer>(i - arguments.size());
      if (!buffer) return buffer.error();
      error = call.add_tensor(names[i], **buffer, true);
    }
    if (!error.empty()) return wrong(error);
  }
  return call.launch(std::string(op), std::string(implementation), dtype, stream);
}

ffi::Error run_on_cpu(ffi::RemainingArgs arguments, ffi::RemainingRets results, std::string_view op,
                      std::string_view implementation, std::string_view axes, std::int32_t dtype,
                      std::string_view tensors) {
  return run(nullptr, arguments, results, op, implementation, axes, dtype, tensors);
}

}  // namespace

extern "C" void ssmbench_jax_connect(void* const* functions) {
  std::memcpy(&library, functions, sizeof library);
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(ssmbench_jax_cpu, run_on_cpu,
                              ffi::Ffi::Bind()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<std::string_view>("op")
                                  .Attr<std::string_view>("implementation")
                                  .Attr<std::string_view>("axes")
                                  .Attr<std::int32_t>("dtype")
                                  .Attr<std::string_view>("tensors"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(ssmbench_jax_cuda, run,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<void*>>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<std::string_view>("op")
                                  .Attr<std::string_view>("implementation")
                                  .Attr<std::string_view>("axes")
                                  .Attr<std::int32_t>("dtype")
                                  .Attr<std::string_view>("tensors"));
