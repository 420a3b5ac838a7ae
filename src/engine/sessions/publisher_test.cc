#include "engine/sessions/publisher.h"

#include <gtest/gtest.h>

#include "engine/engine_parts_test_util.h"

namespace weft {
namespace {

TEST(PublisherTest, PublishesWhatWasTouched) {
  SessionParts parts;
  Session* const session = parts.Named("a");
  EXPECT_FALSE(parts.publisher->view()->Latest()->Inspect(session->id).ok());
  parts.publisher->Publish({}, {}, {}, true);
  EXPECT_OK(parts.publisher->CheckIntegrity());

  session->note = "changed";
  EXPECT_THAT(parts.publisher->CheckIntegrity(),
              IsError(StatusCode::kInternal, "is published as it was"));
  parts.publisher->Touch(session);
  parts.publisher->Publish({}, {}, {}, true);
  EXPECT_OK(parts.publisher->CheckIntegrity());
  EXPECT_EQ(parts.publisher->view()->Latest()->Inspect(session->id)->note, "changed");
}

TEST(PublisherTest, AnswersComeOnceReadersSeeTheEffect) {
  SessionParts parts;
  parts.publisher->Publish({}, {}, {}, true);
  Session* const session = parts.Named("a");
  bool seen = false;
  parts.publisher->AfterPublish(
      [&] { seen = parts.publisher->view()->Latest()->Inspect(session->id).ok(); });
  EXPECT_TRUE(parts.publisher->IsDue());
  parts.publisher->Publish({}, {}, {}, true);
  EXPECT_TRUE(seen);
}

TEST(PublisherTest, WhatHoldsStateForTheDiskIsNotShown) {
  SessionParts parts;
  Session* const holder = *parts.table->CreateHolder("");
  parts.publisher->Touch(holder);
  parts.publisher->Publish({}, {}, {}, true);
  EXPECT_FALSE(parts.publisher->view()->Latest()->Inspect(holder->id).ok());
  EXPECT_OK(parts.publisher->CheckIntegrity());
  parts.table->Remove(holder);
}

TEST(PublisherTest, SharingOfOthersIsCheckedLater) {
  SessionParts parts;
  Session* const from = parts.Named("a");
  parts.Fill(from, 32);
  parts.publisher->Publish({}, {}, {}, true);
  EXPECT_EQ(parts.publisher->view()->Latest()->Inspect(from->id)->shared_pages, 0);
  // Changes the facts about `from` without touching it.
  parts.sessions->Fork(from->id, -1, {.name = "b"}, [](const auto& id) { EXPECT_OK(id); });
  while (parts.publisher->HasMore()) parts.publisher->Publish({}, {}, {}, true);
  EXPECT_GT(parts.publisher->view()->Latest()->Inspect(from->id)->shared_pages, 0);
}

}  // namespace
}  // namespace weft
