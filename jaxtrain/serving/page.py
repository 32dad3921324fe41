"""The page of the server: drop an image on it. It loads nothing from elsewhere."""

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>jaxtrain</title>
<style>
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 40rem; margin: 2rem auto; padding: 0 1rem; }
label { display: block; border: 2px dashed GrayText; border-radius: .5rem;
  padding: 2rem; text-align: center; cursor: pointer; }
label.over { border-color: Highlight; }
img { max-width: 100%; max-height: 16rem; display: block; margin: 1rem auto; }
td { padding: .1rem .5rem; overflow-wrap: anywhere; }
meter { width: 10rem; max-width: 40vw; }
#told { color: #c33; }
</style>
<h1>jaxtrain</h1>
<label id="drop">Drop an image here, or choose one
<input id="file" type="file" accept="image/*" multiple hidden></label>
<p id="told" role="alert"></p>
<div id="results"></div>
<script>
const drop = document.getElementById("drop"), file = document.getElementById("file");
const told = document.getElementById("told");
const results = document.getElementById("results");
async function predict(image) {
  told.textContent = "";
  const headers = {"content-type": "application/octet-stream"};
  let answer;
  try {
    const response = await fetch("/predict", {method: "POST", body: image, headers});
    answer = await response.json();
  } catch (error) { answer = {error: String(error)}; }
  if (answer.error) { told.textContent = image.name + ": " + answer.error; return; }
  const picture = document.createElement("img");
  const table = document.createElement("table");
  picture.src = URL.createObjectURL(image);
  picture.alt = image.name;
  for (const one of answer.predictions[0].classes) {
    const row = table.insertRow(), meter = document.createElement("meter");
    meter.value = one.prob;
    row.insertCell().textContent = one.label;
    row.insertCell().append(meter);
    row.insertCell().textContent = (100 * one.prob).toFixed(1) + " %";
  }
  results.prepend(picture, table);
}
file.onchange = () => [...file.files].forEach(predict);
drop.ondragover = event => { event.preventDefault(); drop.className = "over"; };
drop.ondragleave = () => { drop.className = ""; };
drop.ondrop = event => {
  event.preventDefault();
  drop.className = "";
  [...event.dataTransfer.files].forEach(predict);
};
</script>
</html>
"""
