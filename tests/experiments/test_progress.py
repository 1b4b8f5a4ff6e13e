"""Progress: counted in rounds, lines where no bar can be drawn."""

from fedclust.experiments import progress
from fedclust.experiments.progress import Note, Progress
from tests.experiments.test_sweeps import go, small


def test_a_log_gets_lines(tmp_path, monkeypatch):
    log = tmp_path / "told"
    monkeypatch.setenv("FEDCLUST_PROGRESS", str(log))
    go([small()], tmp_path)
    lines = log.read_text().splitlines()
    assert lines[0].startswith("trial 0/1  rounds 0/3")
    assert lines[-1].startswith("trial 1/1  rounds 3/3  elapsed 00:0")


def test_rounds_of_running_trials_count(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDCLUST_PROGRESS", str(tmp_path / "told"))
    notes = {"one": tmp_path / "one.rounds", "two": tmp_path / "two.rounds"}
    told = Progress({"one": 10, "two": 30}, notes, reused=1)
    with told:
        Note(notes["two"])(10, 30)
        told.end(["one"])
        notes["one"].write_text("no number")  # is not read any more
        told.show()
        assert told.bar.n == 10 + 10 and told.name == "trial 2/3"
        told.say("a word in between")
    assert "a word in between" in (tmp_path / "told").read_text()


def test_a_note_is_not_written_after_every_round(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    note = Note(tmp_path / "rounds")
    note(1, 8)
    note(2, 8)
    assert note.path.read_text() == "0.125"
    now[0] += progress.SECONDS + 1
    note(4, 8)
    assert note.path.read_text() == "0.5"
    Note(tmp_path / "missing" / "rounds")(1, 8)  # a full disk stops nothing


def test_nothing_is_shown_when_all_is_there(tmp_path, capsys):
    go([small()], tmp_path)
    capsys.readouterr()
    go([small()], tmp_path)
    assert capsys.readouterr().err == ""
