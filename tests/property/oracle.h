// What a conversation says when nothing else is there: an engine with one thread, no
// prefix cache, no guesses and one turn at a time, given the whole context at once.
#ifndef WEFT_TESTS_PROPERTY_ORACLE_H_
#define WEFT_TESTS_PROPERTY_ORACLE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "tests/property/contexts.h"
#include "tests/property/turn_record.h"
#include "weft/engine.h"

namespace weft::testing {

// One thread.
class Oracle {
 public:
  explicit Oracle(std::shared_ptr<const Model> model) : model_(std::move(model)), rows_(*model_) {}
  virtual ~Oracle() = default;

  const Model& model() const { return *model_; }
  // What the rows in contexts are.
  RowBook& rows() { return rows_; }

  // What choice `choice` of a turn with these options says after `context`. In place of rows that
  // stand for tokens it is asked with these, wherever they may not make a difference.
  // Answers are kept: programs ask the same again.
  StatusOr<ChoiceRecord> Ask(KvType kv_type, const Context& context, const TurnOptions& options,
                             int choice);
  // Empty when that is what `got` says, in every bit (CompareChoices); else where it differs.
  virtual StatusOr<std::string> Compare(KvType kv_type, const Context& context,
                                        const TurnOptions& options, int choice,
                                        const ChoiceRecord& got);

 private:
  StatusOr<Engine*> EngineOf(KvType kv_type);
  bool TellsRowsApart(const TurnOptions& options) const;

  const std::shared_ptr<const Model> model_;
  RowBook rows_;
  std::map<KvType, std::unique_ptr<Engine>> engines_;
  std::map<std::string, ChoiceRecord> answers_;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_PROPERTY_ORACLE_H_
