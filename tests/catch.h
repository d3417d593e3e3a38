#pragma once

// Debian 12 packages Catch2 v2 (one header), Ubuntu 24.04 v3 (many).
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;  // as v2 has it
#else
#include <catch2/catch.hpp>
#endif
