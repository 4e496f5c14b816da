#include "reference/optimizers/optimizer.hpp"

namespace canzona::reference {

DecayForm decay_form(const Options& options) {
  if (options.is("weight_decay_form", "decoupled_after")) return DecayForm::after;
  if (options.is("weight_decay_form", "decoupled_with_step")) return DecayForm::with_step;
  return DecayForm::before;
}

double learning_rate(double lr, std::int64_t warmup_steps, std::int64_t step) {
  return step < warmup_steps ? lr * (static_cast<double>(step) / static_cast<double>(warmup_steps)) : lr;
}

std::vector<OptionDescription> learning_options(const std::string& lr, const std::string& weight_decay,
                                                const std::string& form, const std::vector<OptionDescription>& own) {
  std::vector<OptionDescription> options{
      {"lr", NumberOption{0, 1e6}, lr, "", "learning rate"},
      {"warmup_steps", IntegerOption{0, 1'000'000'000}, "0", "steps",
       "over which the learning rate rises linearly from 0 to lr"},
      {"weight_decay", NumberOption{0, 1e6}, weight_decay, "", "decoupled"},
      {"weight_decay_form", WordOption{{"decoupled_before", "decoupled_with_step", "decoupled_after"}}, form, "",
       "when the weight decays: before the step, in it, or after it"}};
  options.insert(options.end(), own.begin(), own.end());
  return options;
}

}  // namespace canzona::reference
