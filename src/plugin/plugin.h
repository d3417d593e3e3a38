#pragma once

#include <filesystem>
#include <vector>

#include "model/implementation.h"

namespace ssmbench {

/// Loads a shared library with the functions of plugins/ssmbench_plugin.h and returns its implementations. It
/// stays loaded. Throws UsageError when it is not such a library, has another ABI version, or describes an
/// implementation that makes no sense.
std::vector<Implementation> load_plugin(const std::filesystem::path& file);

/// Whether a library was loaded, or it was tried. Its destructors and exit handlers would run when this
/// process returns from main: they may hang, or exit with a code of their own.
bool a_plugin_is_loaded();

/// Adds the implementations of plugins to those that are built in, before the first plan is made. Throws
/// UsageError, also for a name that its operation has already.
void register_plugins(const std::vector<std::filesystem::path>& files);

}  // namespace ssmbench
