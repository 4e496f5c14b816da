// Work that is done by all cores at once.
#pragma once

#include <exception>

namespace canzona {

/// body(index) for every index below `count`, in any order. Rethrows one of the exceptions thrown.
template <class Body>
void for_each_in_parallel(int count, const Body& body) {
  std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic, 1) if (count > 1)
  for (int index = 0; index < count; ++index) {
    try {
      body(index);
    } catch (...) {  // must not leave the loop
#pragma omp critical
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace canzona
