import imports


def test_each_import_is_timed_in_a_process_of_its_own(command, monkeypatch):
    assert imports.MODULES == ("torch", "torchdeal")
    monkeypatch.setattr(imports, "MODULES", ("time", "decimal"))  # light ones
    content, out, code = command(imports.TOOL)
    assert code == 0
    light, heavy = content["results"]
    assert (light["module"], heavy["module"]) == ("time", "decimal")
    assert 0 < light["seconds"] < 100
    assert light["modules"] < heavy["modules"]
    assert "| decimal |" in out
