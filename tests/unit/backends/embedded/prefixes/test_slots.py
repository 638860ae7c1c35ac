from dragoman.backends.embedded.prefixes.slots import Known, SlotTable

SYSTEM, OTHER = "s" * 1000, "o" * 1000


def test_conversation_goes_to_its_slot() -> None:
    slots = SlotTable(2, 0)
    for text in (SYSTEM + "a", OTHER + "b"):
        slot = slots.take(text, fresh=False)
        assert slot is not None
        slots.put(slot, text)
        slots.release(slot)
    assert slots.known(SYSTEM + "a more") == Known(1001, True)
    slot = slots.take(SYSTEM + "a more", fresh=False)
    assert slot is not None
    assert slots.text(slot) == SYSTEM + "a"


def test_new_prefix_goes_to_least_recently_used_slot() -> None:
    slots = SlotTable(3, 0)
    for text in ("a", "b"):
        slot = slots.take(text, fresh=True)
        assert slot is not None
        slots.put(slot, text)
        slots.release(slot)
    empty = slots.take("c", fresh=True)
    assert empty is not None
    assert slots.text(empty) == ""
    oldest = slots.take("d", fresh=True)
    assert oldest is not None
    assert slots.text(oldest) == "a"


def test_short_prompt_does_not_evict_long_conversation() -> None:
    slots = SlotTable(2, 0)
    for text in (SYSTEM, "title of a conversation", "title of another one"):
        slot = slots.take(text, fresh=False)
        assert slot is not None
        slots.put(slot, text)
        slots.release(slot)
    assert sorted(slots.text(slot)[:1] for slot in range(2)) == ["s", "t"]


def test_same_first_words_do_not_evict_long_conversation() -> None:
    slots = SlotTable(2, 0)
    for text in ("You are an agent. " + SYSTEM, "You are a poet.", "You are an expert."):
        slot = slots.take(text, fresh=False)
        assert slot is not None
        slots.put(slot, text)
        slots.release(slot)
    assert sorted(len(slots.text(slot)) for slot in range(2)) == [18, 1018]


def test_changed_last_message_goes_to_its_slot() -> None:
    slots = SlotTable(2, 0)
    slots.put(0, SYSTEM + "first question")
    slots.put(1, OTHER)
    assert slots.take(SYSTEM + "other question", fresh=False) == 0


def test_busy_slots_are_not_taken() -> None:
    slots = SlotTable(2, 0)
    assert {slots.take("a", fresh=False), slots.take("a", fresh=False)} == {0, 1}
    assert slots.take("a", fresh=False) is None
    slots.release(1)
    assert slots.take("a", fresh=False) == 1


def test_second_conversation_does_not_continue_first() -> None:
    slots = SlotTable(1, 0)
    slots.put(0, SYSTEM + "long first conversation" * 20)
    assert slots.known(SYSTEM + "another one") == Known(1000, False)


def test_evicted_conversation_is_known_while_it_fits_in_memory() -> None:
    slots = SlotTable(1, 10_000)
    slots.put(0, SYSTEM)
    slots.put(0, OTHER)
    assert slots.known(SYSTEM + "more").is_continued
    slots.bytes_per_char = 6.0  # the engine also has a copy of what is in the slot
    assert not slots.known(SYSTEM + "more").is_continued
    assert slots.known(OTHER + "more").is_continued


def test_longer_text_of_slot_replaces_earlier_one() -> None:
    slots = SlotTable(1, 10_000)
    slots.put(0, SYSTEM)
    slots.put(0, SYSTEM + "a")
    slots.put(0, OTHER)
    assert slots.known(SYSTEM + "b") == Known(1000, True)
