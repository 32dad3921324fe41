"""Audio: clips of sound files, converted to spectrograms."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="sound",
    subject="data and planning",
    sources={"audio:DIR_OR_FILE.csv": "jaxtrain.plugins.sound.audio:open_audio"},
    inputs={"sound": "jaxtrain.plugins.sound.sound_input:SoundInput"},
)
