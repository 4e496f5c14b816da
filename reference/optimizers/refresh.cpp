#include "reference/optimizers/refresh.hpp"

namespace canzona::reference {

std::vector<OptionDescription> refresh_options(const std::string& frequency,
                                               const std::vector<OptionDescription>& own) {
  std::vector<OptionDescription> options{
      {"precondition_frequency", IntegerOption{1, 1'000'000}, frequency, "steps", "between two refreshes of a matrix"},
      {"refresh", WordOption{{"together", "staggered"}}, "together", "",
       "all matrices in one step, or the matrices of a rank in turns"}};
  options.insert(options.end(), own.begin(), own.end());
  return options;
}

std::int64_t refresh_period(const Options& options) { return options.integer("precondition_frequency"); }

OptionDescription max_precond_dim_option(const std::string& standard) {
  return {"max_precond_dim", IntegerOption{0, std::int64_t{1} << 40}, standard, "elements",
          "a longer side keeps the identity"};
}

std::vector<std::int64_t> preconditioned_sides(Shape shape, std::int64_t max_precond_dim) {
  std::vector<std::int64_t> sides;
  for (const std::int64_t side : {shape.rows, shape.cols}) {
    if (side <= max_precond_dim) sides.push_back(side);
  }
  return sides;
}

}  // namespace canzona::reference
