// The lines of weft top. Pure, but for the memory of the last five minutes. One thread.
#ifndef WEFT_CLI_TOP_TOP_SCREEN_H_
#define WEFT_CLI_TOP_TOP_SCREEN_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "cli/top/server_view.h"

namespace weft::cli {

class TopScreen {
 public:
  // `plain`: bars of ASCII alone.
  TopScreen(std::string title, bool plain) : title_(std::move(title)), plain_(plain) {}

  // A reading at that time; earlier readings fill the charts.
  void Add(const ServerView& view, int64_t now_us);
  // The lines for a window of that size.
  std::vector<std::string> Lines(size_t columns, size_t rows) const;

 private:
  struct Reading {
    int64_t at_us = 0;
    ServerRates rates;
    int64_t running = 0, waiting = 0;
  };

  void AddFigures(std::vector<std::string>* lines, size_t columns) const;
  void AddModels(std::vector<std::string>* lines, size_t columns) const;
  void AddCharts(std::vector<std::string>* lines, size_t columns) const;
  // The last readings as `columns` bars, each the mean of its time.
  std::string Chart(double (*value)(const Reading&), size_t columns, double* max) const;

  const std::string title_;
  const bool plain_;
  ServerView view_;
  std::deque<Reading> history_;  // of five minutes, oldest first
};

}  // namespace weft::cli

#endif  // WEFT_CLI_TOP_TOP_SCREEN_H_
