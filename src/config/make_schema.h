#pragma once

#include "config/document.h"

namespace ssmbench {

/// The JSON schema (draft 7) of config files: schema_frame.json with what the operations, distributions and
/// methods of this build add to it. Its descriptions are what error messages quote. `ssmbench schema` prints
/// it, and configs/schema.json is that.
Json config_schema();

}  // namespace ssmbench
