// Which libraries the host's part of every backend uses.
#pragma once

#include <map>
#include <string>

namespace canzona::optimized {

/// Of BLAS and MPI, by name.
std::map<std::string, std::string> host_versions();

}  // namespace canzona::optimized
