#include "plugin/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "base/errors.h"
#include "base/printable.h"
#include "device/device.h"
#include "device/floating_point.h"
#include "plugin/plugin_problem.h"
#include "plugins/ssmbench_plugin.h"

namespace ssmbench {
namespace {

namespace fs = std::filesystem;

bool is_any_loaded = false;

/// `plugin`: as --plugin has it.
[[noreturn]] void refuse(const std::string& plugin, const std::string& why) {
  throw UsageError(fmt::format("--plugin {}: {}", plugin, printable(why)));
}

bool is_python(const fs::path& file) {
  return file.extension() == ".py";
}

/// The plugin that runs Python files: in a folder of its own beside the program, as built, or beside the
/// program's folder, as installed.
fs::path python_bridge(const std::string& plugin) {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* there : {"lib/ssmbench", "../lib/ssmbench"})
    if (fs::path library = folder / there / "ssmbench_python.so"; fs::exists(library, error)) return library;
  refuse(plugin, "Python files need lib/ssmbench/ssmbench_python.so, which was not installed");
}

void check_that_exists(const std::string& plugin, const fs::path& file) {
  std::error_code error;
  if (!fs::exists(file, error)) refuse(plugin, "no such file");
}

void* open_library(const std::string& plugin, const fs::path& file) {
  is_any_loaded = true;  // what it does in the end, it may do even if it is refused
  const KeptFloatingPoint kept;
  // An absolute path, or the loader would look for a bare name in its own folders.
  void* library = dlopen(fs::absolute(file).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    refuse(plugin, fmt::format("is not a shared library that loads here: {}", dlerror()));
  return library;
}

/// The functions of one plugin; they stay valid, since it is never unloaded.
struct Functions {
  decltype(&ssmbench_plugin_unsupported) unsupported;
  decltype(&ssmbench_plugin_workspace_bytes) workspace_bytes;
  decltype(&ssmbench_plugin_bind) bind;
  decltype(&ssmbench_plugin_launch) launch;
  decltype(&ssmbench_plugin_release) release;
};

template <class Function>
Function resolve(const std::string& plugin, void* library, const char* name) {
  void* symbol = dlsym(library, name);
  if (symbol == nullptr) refuse(plugin, fmt::format("has no function {}; see plugins/README.md", name));
  return reinterpret_cast<Function>(symbol);
}

Functions functions_of(const std::string& plugin, void* library) {
  return {
      resolve<decltype(Functions::unsupported)>(plugin, library, "ssmbench_plugin_unsupported"),
      resolve<decltype(Functions::workspace_bytes)>(plugin, library, "ssmbench_plugin_workspace_bytes"),
      resolve<decltype(Functions::bind)>(plugin, library, "ssmbench_plugin_bind"),
      resolve<decltype(Functions::launch)>(plugin, library, "ssmbench_plugin_launch"),
      resolve<decltype(Functions::release)>(plugin, library, "ssmbench_plugin_release"),
  };
}

constexpr std::array kMaths{Math::f32, Math::f64, Math::tf32, Math::f16, Math::bf16};  // by SSMBENCH_MATH_…
constexpr std::array kDTypes{DType::f32, DType::f64, DType::f16, DType::bf16};  // of states, by SSMBENCH_…
constexpr std::array kDevices{DeviceKind::cpu, DeviceKind::cuda};

/// The value that a plugin's number stands for.
template <class Value, std::size_t size>
Value decode(const std::array<Value, size>& values, std::int32_t code, const std::string& what,
             const std::string& plugin) {
  if (code < 0 || code >= static_cast<std::int32_t>(size))
    refuse(plugin,
           fmt::format("{} is {}, expected 0 to {} (see plugins/ssmbench_plugin.h)", what, code, size - 1));
  return values[static_cast<std::size_t>(code)];
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

std::string text_of(const char* text) {
  return text == nullptr ? "" : text;
}

/// Memory of the largest device of a kind; no limit where there is none, since nothing runs there.
std::int64_t memory_of(DeviceKind kind) {
  std::size_t most = 0;
  for (const auto& device : list_devices())
    if (device.kind == kind) most = std::max(most, device.total_bytes);
  return most == 0 ? std::numeric_limits<std::int64_t>::max() : static_cast<std::int64_t>(most);
}

/// Calls a function of a plugin, which may leave another floating-point environment.
template <class Function, class... Arguments>
auto call(Function function, Arguments... arguments) {
  const KeptFloatingPoint kept;
  return function(arguments...);
}

/// What a plugin has bound, until it is released.
class Bound {
 public:
  /// Throws DeviceError with `label` and what the plugin says.
  Bound(const Functions& functions, std::int32_t index, std::string label, const Problem& problem,
        const TensorSet& tensors, void* workspace)
      : functions_(functions), label_(std::move(label)), problem_(problem, tensors) {
    check(call(functions_.bind, index, &problem_.view(), workspace, &handle_));
  }
  ~Bound() { call(functions_.release, handle_); }
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;
  Bound(Bound&&) = delete;
  Bound& operator=(Bound&&) = delete;

  void launch(void* stream) const { check(call(functions_.launch, handle_, stream)); }

 private:
  void check(const char* error) const {
    if (error != nullptr) throw DeviceError(fmt::format("{}: {}", label_, error));
  }

  Functions functions_;
  std::string label_;
  PluginProblem problem_;
  void* handle_ = nullptr;
};

/// One implementation of a plugin: its functions, with its number and its name for messages.
struct Entry {
  Functions functions;
  std::int32_t index;
  std::string label;  ///< "cpu-mine of libmine.so"
  std::int64_t memory_bytes;

  std::optional<std::string> unsupported(const Problem& problem) const {
    const char* reason = call(functions.unsupported, index, &PluginProblem(problem).view());
    if (reason == nullptr) return {};
    return *reason == '\0' ? "unsupported, without a reason" : std::string(reason);
  }

  /// What the plugin asks for; 0 where that cannot be, which bind() then refuses: so that a plugin that lies
  /// fails its own cases, and not the whole sweep.
  std::size_t workspace_bytes(const Problem& problem) const {
    const std::int64_t asked = asked_workspace(problem);
    return asked < 0 || asked > memory_bytes ? 0 : static_cast<std::size_t>(asked);
  }

  Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) const {
    check_contract(problem, tensors);
    const std::int64_t asked = asked_workspace(problem);
    if (asked < 0)
      throw ContractError(fmt::format("{}: ssmbench_plugin_workspace_bytes returned {}", label, asked));
    if (asked > memory_bytes)
      throw OutOfMemory(
          fmt::format("{}: asks for {} bytes of workspace, the device has {}", label, asked, memory_bytes));
    const auto bound = std::make_shared<Bound>(functions, index, label, problem, tensors, workspace);
    return [bound](void* stream) { bound->launch(stream); };
  }

 private:
  std::int64_t asked_workspace(const Problem& problem) const {
    return call(functions.workspace_bytes, index, &PluginProblem(problem).view());
  }
};

/// `label`: what messages call the plugin.
Implementation implementation_of(const std::string& plugin, const std::string& label,
                                 const Functions& functions, std::int32_t index,
                                 const ssmbench_implementation& described) {
  const std::string name = text_of(described.name);
  if (!is_plain_name(name))
    refuse(plugin,
           fmt::format("implementation {} has the name '{}'; expected letters, digits, '-', '_' and '.'",
                       index, name));
  const std::string op = text_of(described.op);
  if (find_op(op) == nullptr)
    refuse(plugin, fmt::format("{} computes '{}', which is no operation (see ssmbench list ops)", name, op));

  std::array<Arithmetic, 3> arithmetic;
  for (std::size_t io = 0; io < arithmetic.size(); ++io)
    arithmetic[io] = {
        decode(kMaths, described.math[io], fmt::format("{}: math[{}]", name, io), plugin),
        decode(kDTypes, described.state_dtype[io], fmt::format("{}: state_dtype[{}]", name, io), plugin)};
  const DeviceKind device = decode(kDevices, described.device, name + ": device", plugin);
  const Entry entry{functions, index, fmt::format("{} of {}", name, label), memory_of(device)};
  return {.name = name,
          .op = op,
          .device = device,
          .summary = text_of(described.summary),
          .arithmetic =
              [arithmetic](DType io) {
                return arithmetic[io == DType::f16 ? 1 : io == DType::bf16 ? 2 : 0];
              },
          .deterministic = described.deterministic != 0,
          .unsupported = [entry](const Problem& problem) { return entry.unsupported(problem); },
          .workspace_bytes = [entry](const Problem& problem) { return entry.workspace_bytes(problem); },
          .bind = [entry](const Problem& problem, const TensorSet& tensors,
                          void* workspace) { return entry.bind(problem, tensors, workspace); }};
}

}  // namespace

bool a_plugin_is_loaded() {
  return is_any_loaded;
}

PluginName parse_plugin(const std::string& text) {
  std::error_code error;
  const auto equals = text.find('=');
  if (equals == std::string::npos || fs::exists(text, error)) return {.file = text};
  return {.file = text.substr(0, equals), .argument = text.substr(equals + 1)};
}

std::vector<Implementation> load_plugin(const std::string& text) {
  PluginName name = parse_plugin(text);
  check_that_exists(text, name.file);
  const std::string label = name.file.filename().string();
  if (is_python(name.file)) {
    if (!name.argument.empty()) refuse(text, "takes no argument");
    name = {.file = python_bridge(text), .argument = fs::absolute(name.file).string()};
  }
  void* library = open_library(text, name.file);
  const auto describe =
      resolve<decltype(&ssmbench_plugin_describe)>(text, library, "ssmbench_plugin_describe");
  const auto open = reinterpret_cast<decltype(&ssmbench_plugin_open)>(dlsym(library, "ssmbench_plugin_open"));
  if (open == nullptr && !name.argument.empty()) refuse(text, "takes no argument");
  if (open != nullptr)
    if (const char* error = call(open, name.argument.c_str())) refuse(text, error);
  const ssmbench_plugin* plugin = call(describe);
  if (plugin == nullptr) refuse(text, "ssmbench_plugin_describe returned nothing");
  if (plugin->abi_version != SSMBENCH_PLUGIN_ABI_VERSION)
    refuse(text, fmt::format("was built for ABI version {}, this ssmbench has {}; build it with the "
                             "ssmbench_plugin.h of this one",
                             plugin->abi_version, SSMBENCH_PLUGIN_ABI_VERSION));
  if (plugin->implementation_count < 1 || plugin->implementations == nullptr)
    refuse(text, "describes no implementation");
  const Functions functions = functions_of(text, library);
  std::vector<Implementation> all;
  for (std::int32_t i = 0; i < plugin->implementation_count; ++i)
    all.push_back(
        implementation_of(text, label, functions, plugin->first_index + i, plugin->implementations[i]));
  return all;
}

void register_plugins(const std::vector<std::string>& texts) {
  for (const auto& text : texts)
    for (auto& implementation : load_plugin(text)) {
      if (std::ranges::any_of(implementations(), [&](const Implementation& known) {
            return known.op == implementation.op && known.name == implementation.name;
          }))
        refuse(text,
               fmt::format("{} has an implementation {} already", implementation.op, implementation.name));
      const Registration registration(std::move(implementation));
    }
}

}  // namespace ssmbench
