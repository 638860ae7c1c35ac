"""Places for connections: their order and their time limit."""

import threading
from concurrent.futures import ThreadPoolExecutor

from dragoman.state.fair_places import FairPlaces
from support.gateway import until


def test_places_are_taken_in_the_order_of_requests() -> None:
    places = FairPlaces(1)
    assert places.take(0)
    order: list[int] = []

    def take(number: int) -> None:
        assert places.take(60)
        order.append(number)
        places.release()

    with ThreadPoolExecutor(5) as threads:
        for number in range(5):
            threads.submit(take, number)
            until(lambda number=number: len(places._waiting) == number + 1)  # type: ignore[misc]
        places.release()
    assert order == [0, 1, 2, 3, 4]
    assert places.take(0)


def test_thread_that_asks_often_does_not_starve_others() -> None:
    places, stop, taken = FairPlaces(1), threading.Event(), threading.Semaphore(0)

    def work() -> None:
        while not stop.is_set():
            assert places.take(60)
            places.release()

    def take() -> None:
        assert places.take(60)
        places.release()
        taken.release()

    with ThreadPoolExecutor(4) as threads:
        threads.submit(work)
        threads.submit(work)
        for _ in range(100):
            threads.submit(take)
        for _ in range(100):
            assert taken.acquire(timeout=60)
        stop.set()


def test_missing_place_is_waited_for_no_longer_than_allowed() -> None:
    places = FairPlaces(1)
    assert places.take(0)
    assert not places.take(0.01)
    places.release()
    assert places.take(0)
    assert not places.take(0)
