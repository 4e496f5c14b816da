#include "optimized/host/versions.hpp"

#include <mpi.h>

#include <array>

#include "optimized/host/blas.hpp"

namespace canzona::optimized {

std::map<std::string, std::string> host_versions() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string mpi(text.data(), static_cast<std::size_t>(length));
  // "Open MPI v4.1.4, package: …", and MPICH's goes on in further lines
  return {{"BLAS", blas_name()}, {"MPI", mpi.substr(0, mpi.find_first_of(",\n"))}};
}

}  // namespace canzona::optimized
