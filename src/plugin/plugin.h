#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "model/implementation.h"

namespace ssmbench {

/// A plugin as --plugin names it: FILE, or FILE=ARGUMENT.
struct PluginName {
  std::filesystem::path file;
  std::string argument = {};
};

/// What is before the first "=" is the file, unless all of it is one.
PluginName parse_plugin(const std::string& text);

/// Loads a shared library with the functions of plugins/ssmbench_plugin.h, or a Python file by the plugin that
/// runs such files, and returns its implementations. It stays loaded. Throws UsageError when it is not such a
/// library, has another ABI version, or describes an implementation that makes no sense.
std::vector<Implementation> load_plugin(const std::string& text);

/// Whether a library was loaded, or it was tried. Its destructors and exit handlers would run when this
/// process returns from main: they may hang, or exit with a code of their own.
bool a_plugin_is_loaded();

/// Adds the implementations of plugins, each named as by --plugin, to those that are built in, before the
/// first plan is made. Throws UsageError, also for a name that its operation has already.
void register_plugins(const std::vector<std::string>& texts);

}  // namespace ssmbench
