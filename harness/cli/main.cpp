#include "harness/cli/command.hpp"

int main(int count, char** arguments) { return canzona::harness::run_command({arguments + 1, arguments + count}); }
